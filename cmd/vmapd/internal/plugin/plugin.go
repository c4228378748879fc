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
	// Node is the node to ask; "": that of one of the Refs, or else any.
	Node string
	// Refs are what the command is about, the client first.
	Refs []names.Ref
	// RefNamespace is that of Refs without one; "": kubectl's.
	RefNamespace string
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
func (t Target) Exec(args []string) []string {
	return append([]string{"exec", "-n", t.Namespace, t.Pod, "-c", t.Container, "--", program}, args...)
}

// Attached is Exec for a subcommand that runs until its input ends.
func (t Target) Attached(args []string) []string {
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
		return nil, fmt.Errorf("no pod of vmapd: namespace %s has none with the labels %s (--vmapd-namespace, --vmapd-selector)", p.Namespace, p.Selector)
	}
	slices.SortFunc(targets, func(a, b Target) int { return strings.Compare(a.Node, b.Node) })
	return targets, nil
}

// Find finds the pod that runs on the node.
func (p *Plugin) Find(ctx context.Context) (Target, error) {
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
	for i, ref := range p.Refs {
		at, err := p.placeOf(ctx, ref, byNode)
		if err != nil {
			return Target{}, err
		}
		if found.node == "" {
			found.node, found.why = at.node, at.why
		}
		if i == 0 {
			found.addrs = at.addrs
		}
	}
	if found.node == "" {
		found.node, found.why = nodes[0], fmt.Sprintf("one of %d; --node chooses", len(nodes))
	}
	target, ok := byNode[found.node]
	if !ok {
		return Target{}, fmt.Errorf("no pod of vmapd runs on node %s (%s); it runs on %s", found.node, found.why, listed(nodes))
	}
	target.Why = found.why
	if found.addrs != "" {
		target.Client = strings.Split(found.addrs, ",")
	}
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
	addrs     string // of a pod, with commas
}

// placeOf returns the node of a pod, a node or a Service's endpoint, or the zero place.
func (p *Plugin) placeOf(ctx context.Context, ref names.Ref, byNode map[string]Target) (place, error) {
	var pod corev1.Pod
	switch {
	case ref.Kind == names.Node:
		return place{node: ref.Name, why: ref.String()}, nil
	case ref.Kind == names.Pod:
		if err := p.get(ctx, &pod, append([]string{"pod", ref.Name}, p.namespace(ref)...)...); err != nil {
			return place{}, fmt.Errorf("find the node of %v: %w", ref, err)
		}
	case ref.Kind == names.Address:
		var pods corev1.PodList
		if err := p.get(ctx, &pods, "pods", "-A", "--field-selector", "status.podIP="+ref.Addr.String()); err != nil || len(pods.Items) != 1 {
			return place{}, nil //nolint:nilerr // without the right to list all pods, --node is left
		}
		pod = pods.Items[0]
	case ref.Kind == names.Service:
		return p.placeOfService(ctx, ref, byNode)
	default:
		return place{}, nil
	}
	at := place{node: pod.Spec.NodeName, why: fmt.Sprintf("pod %s/%s is there", pod.Namespace, pod.Name)}
	if ref.Kind == names.Pod {
		var addrs []string
		for _, ip := range pod.Status.PodIPs {
			addrs = append(addrs, ip.IP)
		}
		at.addrs = strings.Join(addrs, ",")
	}
	return at, nil
}

// placeOfService takes the first node with an endpoint that is ready, and with vmapd. A Service without
// one may be asked for on any node.
func (p *Plugin) placeOfService(ctx context.Context, ref names.Ref, byNode map[string]Target) (place, error) {
	var list discoveryv1.EndpointSliceList
	args := append([]string{"endpointslices", "-l", discoveryv1.LabelServiceName + "=" + ref.Name}, p.namespace(ref)...)
	if err := p.get(ctx, &list, args...); err != nil {
		return place{}, fmt.Errorf("find a node of %v: %w", ref, err)
	}
	var nodes []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if _, ok := byNode[*cmp.Or(e.NodeName, new(string))]; ok && *cmp.Or(e.Conditions.Ready, new(true)) {
				nodes = append(nodes, *e.NodeName)
			}
		}
	}
	if len(nodes) == 0 {
		return place{}, nil
	}
	return place{node: slices.Min(nodes), why: fmt.Sprintf("an endpoint of %v is there", ref)}, nil
}

func (p *Plugin) namespace(ref names.Ref) []string {
	if n := cmp.Or(ref.Namespace, p.RefNamespace); n != "" {
		return []string{"-n", n}
	}
	return nil
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
