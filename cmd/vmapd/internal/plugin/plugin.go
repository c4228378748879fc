// Package plugin runs a subcommand of vmapd beside the daemon of a node, through the API server: it is
// what "kubectl vmapd" does.
//
//	--node, or the node of the Service or pod ──> vmapd's pod there ──> kubectl exec
//
// All requests are made by kubectl, which started the plugin: so they have its context, its credentials and their
// plugins. client-go's remotecommand would add 0.6 MB to the daemon's program, and three modules.
package plugin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Plugin finds the daemon of a node.
type Plugin struct {
	// Kubectl runs kubectl, and returns its output.
	Kubectl func(ctx context.Context, args ...string) ([]byte, error)
	// Namespace and Selector are those of vmapd's pods.
	Namespace, Selector string
	// Node is the node to ask; "": that of what a command is about, or else any.
	Node string
}

// Target is a pod of vmapd.
type Target struct {
	Node, Namespace, Pod, Container string
	// NotRunning is the reason for which nothing can run there; "": it runs.
	NotRunning string
	// Client are the addresses of the client, if that is a pod; the daemon does not know all pods.
	Client []string
}

// String returns the name of the node.
func (t Target) String() string { return t.Node }

// Exec returns the arguments with which kubectl runs a subcommand in the container.
func (t Target) Exec(args ...string) []string {
	const program = "/usr/local/bin/vmapd"
	return append([]string{"exec", "-i", "-n", t.Namespace, t.Pod, "-c", t.Container, "--", program}, args...)
}

// Pods returns all pods of vmapd, sorted by node.
func (p *Plugin) Pods(ctx context.Context) (targets []Target, err error) {
	var pods corev1.PodList
	if err := p.get(ctx, &pods, "pods", "-n", p.Namespace, "-l", p.Selector); err != nil {
		return nil, fmt.Errorf("list vmapd's pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || len(pod.Spec.Containers) == 0 || pod.Spec.NodeName == "" {
			continue
		}
		t := Target{Node: pod.Spec.NodeName, Namespace: pod.Namespace, Pod: pod.Name}
		t.Container = pod.Spec.Containers[0].Name
		if pod.Status.Phase != corev1.PodRunning {
			t.NotRunning = fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, pod.Status.Phase)
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no pod of vmapd: namespace %s has none with the labels %s "+
			"(--vmapd-namespace, --vmapd-selector)", p.Namespace, p.Selector)
	}
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Node, b.Node) })
	return targets, nil
}

// Find returns the pod on the node of what a command is about: the first one that is a node or a pod; without one, any
// node answers. Names without a namespace are in the given one.
func (p *Plugin) Find(ctx context.Context, namespace string, refs []names.Ref) (found Target, err error) {
	pods, err := p.Pods(ctx)
	if err != nil {
		return found, err
	}
	running := slices.DeleteFunc(slices.Clone(pods), func(t Target) bool { return t.NotRunning != "" })
	if len(running) == 0 {
		return found, fmt.Errorf("none of vmapd's pods runs: %s", pods[0].NotRunning)
	}
	node := p.Node
	for i, ref := range refs {
		switch ref.Kind {
		case names.Node:
			node = cmp.Or(node, ref.Name)
		case names.Pod:
			var pod corev1.Pod
			if err := p.get(ctx, &pod, "pod", ref.Name, "-n", cmp.Or(ref.Namespace, namespace)); err != nil {
				return found, fmt.Errorf("find the node of %v: %w", ref, err)
			}
			node = cmp.Or(node, pod.Spec.NodeName)
			for _, ip := range pod.Status.PodIPs {
				if i == 0 {
					found.Client = append(found.Client, ip.IP)
				}
			}
		case names.Service, names.Address, names.Process:
		}
	}
	i := slices.IndexFunc(running, func(t Target) bool { return node == "" || t.Node == node })
	if i < 0 {
		return found, fmt.Errorf("no pod of vmapd runs on node %s; it runs on %s", node, report.List(running, 10))
	}
	running[i].Client = found.Client
	return running[i], nil
}

// ContextNamespace returns the namespace of kubectl's context.
func (p *Plugin) ContextNamespace(ctx context.Context) (string, error) {
	out, err := p.Kubectl(ctx, "config", "view", "--minify", "-o", "jsonpath={..namespace}")
	return cmp.Or(strings.TrimSpace(string(out)), corev1.NamespaceDefault), err
}

func (p *Plugin) get(ctx context.Context, into any, args ...string) error {
	out, err := p.Kubectl(ctx, append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("kubectl's output: %w", err)
	}
	return nil
}

// Kubectl is the program, with flags such as --context for all requests.
type Kubectl struct{ Flags []string }

// endTime is how long a command in a pod may take to end after its input has ended.
const endTime = 3 * time.Second

// Output runs kubectl for its output. Its errors are those that it prints.
func (k Kubectl) Output(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	code, err := k.Exec(ctx, args, &stdout, &stderr)
	if code != 0 {
		err = errors.New(strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), cmp.Or(ctx.Err(), err)
}

// Exec runs kubectl with the given streams. If that ran and failed, it returns the exit code. When ctx ends, the
// input ends: what runs in the pod ends by that, and kubectl with it.
func (k Kubectl) Exec(ctx context.Context, args []string, stdout, stderr io.Writer) (code int, err error) {
	cmd := k.command(ctx, args)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	cmd.Cancel = input.Close
	err = cmd.Run()
	failed, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return 0, nil //nolint:nilerr // it is to end
	case ok:
		return max(1, failed.ExitCode()), nil
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("the program kubectl is needed: %w", err)
	}
	return 0, err
}

// Dial connects with a command in a pod.
func (k Kubectl) Dial(args []string) net.Conn {
	ours, theirs := net.Pipe()
	cmd := k.command(context.Background(), args)
	cmd.Stdin, cmd.Stdout = theirs, theirs
	go func() {
		_ = cmd.Run() // its end is that of the connection
		_ = theirs.Close()
	}()
	return ours
}

// command is kubectl in a process group of its own: Ctrl-C is for this process, which ends kubectl in order.
func (k Kubectl) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "kubectl", slices.Concat(args[:1], k.Flags, args[1:])...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endTime
	return cmd
}
