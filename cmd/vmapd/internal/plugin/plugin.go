package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
)

// program is vmapd in its image.
const program = "/usr/local/bin/vmapd"

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
	// Why says why this node was chosen.
	Why string
	// Client has the addresses of the client, if that is a pod; the daemon does not know all pods.
	Client []string
}

// Exec returns the arguments with which kubectl runs a subcommand in the container.
func (t Target) Exec(args ...string) []string {
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
		t := Target{Node: pod.Spec.NodeName, Namespace: pod.Namespace, Pod: pod.Name, Container: pod.Spec.Containers[0].Name}
		if pod.Status.Phase != corev1.PodRunning {
			t.NotRunning = fmt.Sprintf("pod %s/%s is %s", pod.Namespace, pod.Name, pod.Status.Phase)
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("no pod of vmapd: namespace %s has none with the labels %s (--vmapd-namespace, --vmapd-selector)",
			p.Namespace, p.Selector)
	}
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Node, b.Node) })
	return targets, nil
}

// Find finds the pod that runs on the node of what a command is about, the client first. Names without a namespace are
// in the given one.
func (p *Plugin) Find(ctx context.Context, namespace string, refs []names.Ref) (Target, error) {
	pods, err := p.Pods(ctx)
	if err != nil {
		return Target{}, err
	}
	byNode := map[string]Target{}
	for _, t := range pods {
		if t.NotRunning == "" {
			byNode[t.Node] = t
		}
	}
	nodes := slices.Sorted(maps.Keys(byNode))
	if len(nodes) == 0 {
		return Target{}, fmt.Errorf("none of vmapd's pods runs: %s", pods[0].NotRunning)
	}
	found := place{node: p.Node, why: "--node"}
	var client []string
	for i, ref := range refs {
		at, err := p.placeOf(ctx, ref, cmp.Or(ref.Namespace, namespace), nodes)
		if err != nil {
			return Target{}, fmt.Errorf("find the node of %v: %w", ref, err)
		}
		if found.node == "" {
			found = at
		}
		if i == 0 {
			client = at.addrs
		}
	}
	if found.node == "" {
		found = place{node: nodes[0], why: fmt.Sprintf("one of %d; --node chooses", len(nodes))}
	}
	target, ok := byNode[found.node]
	if !ok {
		return target, fmt.Errorf("no pod of vmapd runs on node %s (%s); it runs on %s", found.node, found.why, listed(nodes))
	}
	target.Why, target.Client = found.why, client
	return target, nil
}

// ContextNamespace returns the namespace of kubectl's context.
func (p *Plugin) ContextNamespace(ctx context.Context) (string, error) {
	out, err := p.Kubectl(ctx, "config", "view", "--minify", "-o", "jsonpath={..namespace}")
	return cmp.Or(strings.TrimSpace(string(out)), corev1.NamespaceDefault), err
}

// listed returns the first of many names.
func listed(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// place is where something is.
type place struct {
	node, why string
	addrs     []string // of a pod
}

// placeOf returns the node of a pod or a node; of a Service, the first node of vmapd's with an endpoint that is ready.
// Others, and a Service without such an endpoint, have the zero place: any node may be asked.
func (p *Plugin) placeOf(ctx context.Context, ref names.Ref, namespace string, nodes []string) (at place, err error) {
	switch ref.Kind {
	case names.Node:
		return place{node: ref.Name, why: ref.String()}, nil
	case names.Pod:
		var pod corev1.Pod
		err = p.get(ctx, &pod, "pod", ref.Name, "-n", namespace)
		at = place{node: pod.Spec.NodeName, why: fmt.Sprintf("pod %s/%s is there", namespace, ref.Name)}
		for _, ip := range pod.Status.PodIPs {
			at.addrs = append(at.addrs, ip.IP)
		}
	case names.Service:
		var list discoveryv1.EndpointSliceList
		err = p.get(ctx, &list, "endpointslices", "-n", namespace, "-l", discoveryv1.LabelServiceName+"="+ref.Name)
		for _, s := range list.Items {
			for _, e := range s.Endpoints {
				node := ptr.Deref(e.NodeName, "")
				if slices.Contains(nodes, node) && ptr.Deref(e.Conditions.Ready, true) && (at.node == "" || node < at.node) {
					at = place{node: node, why: fmt.Sprintf("an endpoint of %v is there", ref)}
				}
			}
		}
	case names.Address, names.Process:
	}
	return at, err
}

// get runs "kubectl get".
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
