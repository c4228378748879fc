package names

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// ServiceObject is a Service with the fields that lead to its pods.
type ServiceObject struct {
	model.Service
	Selector    map[string]string
	TargetPorts []string // of each of Ports: a number or a name; "" is the port's own number
}

// SliceObject is an EndpointSlice with the names of its endpoints' pods.
type SliceObject struct {
	model.EndpointSlice
	Pods []string // of each of Endpoints; "": none
}

// PodObject is a pod.
type PodObject struct {
	model.NamespacedName
	Node        string
	Addrs       []netip.Addr
	HostNetwork bool
	Reason      string // why it is not ready, in the API's words; "": it is ready, or the reason is not known
	Done        bool   // it has no address any more
	Labels      map[string]string
	Ports       []model.Port // that containers declare
}

// NewService converts a Service.
func NewService(s *corev1.Service) ServiceObject {
	out := ServiceObject{Service: kube.Service(s), Selector: s.Spec.Selector}
	for _, p := range s.Spec.Ports {
		target := p.TargetPort.String()
		if target == "0" {
			target = ""
		}
		out.TargetPorts = append(out.TargetPorts, target)
	}
	return out
}

// NewSlice converts an EndpointSlice.
func NewSlice(s *discoveryv1.EndpointSlice) SliceObject {
	out := SliceObject{EndpointSlice: kube.EndpointSlice(s)}
	for _, e := range s.Endpoints {
		pod := ""
		if ref := e.TargetRef; ref != nil && (ref.Kind == "Pod" || ref.Kind == "") {
			pod = ref.Name
		}
		out.Pods = append(out.Pods, pod)
	}
	return out
}

// NewPod converts a pod.
func NewPod(p *corev1.Pod) PodObject {
	out := PodObject{
		NamespacedName: model.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		Node:           p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Labels: p.Labels,
		Done: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	if !slices.ContainsFunc(p.Status.Conditions, isReady) {
		out.Reason = reason(p)
	}
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	out.Addrs = addrsOf(texts)
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			out.Ports = append(out.Ports, model.Port{Name: port.Name, Port: port.ContainerPort, Protocol: string(port.Protocol)})
		}
	}
	return out
}

// reason returns why a pod is not ready.
func reason(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			return fmt.Sprintf("container %s: %s", c.Name, c.State.Waiting.Reason)
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("container %s has ended with exit code %d", c.Name, c.State.Terminated.ExitCode)
		case c.State.Running != nil && !c.Ready && p.DeletionTimestamp == nil:
			return fmt.Sprintf("container %s runs, and its readiness probe fails", c.Name)
		}
	}
	if p.Status.Phase == corev1.PodPending {
		return "Pending"
	}
	return p.Status.Reason
}

// Selected returns the pods of a namespace that a selector matches, and all pods there.
func (d *Directory) Selected(namespace string, selector map[string]string) (list, all []PodObject) {
	for _, p := range d.Pods {
		if p.Namespace != namespace || p.Done {
			continue
		}
		all = append(all, p)
		if labels.SelectorFromSet(selector).Matches(labels.Set(p.Labels)) {
			list = append(list, p)
		}
	}
	return list, all
}

// Nearly describes the two pods that have most of the wanted labels, or labels with the same keys.
func Nearly(pods []PodObject, want map[string]string) (out []string) {
	type near struct {
		text  string
		score int
	}
	var list []near
	for _, p := range pods {
		n := near{}
		var differ []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, ok := p.Labels[key]
			switch {
			case ok && value == want[key]:
				n.score += 2
			case ok:
				n.score++
				differ = append(differ, key+"="+value)
			default:
				differ = append(differ, "no "+key)
			}
		}
		n.text = fmt.Sprintf("pod %s has %s", p.Name, strings.Join(differ, ", "))
		if n.score > 0 {
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(b.score, a.score) })
	for _, n := range list[:min(len(list), 2)] {
		out = append(out, n.text)
	}
	return out
}
