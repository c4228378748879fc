package names

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmapd/vmapd/model"
)

var errName = errors.New("not a name")

// pod finds a pod, among pods or else among the endpoints of slices.
func (r *resolver) pod(ref Ref) (end, error) {
	var among []model.NamespacedName
	for _, p := range r.Pods {
		among = append(among, p.NamespacedName)
	}
	for i := range r.Slices {
		for _, name := range r.Slices[i].Pods {
			if name != "" {
				among = append(among, model.NamespacedName{Namespace: r.Slices[i].Namespace, Name: name})
			}
		}
	}
	name, err := r.find(Pod, ref, among)
	if err != nil && r.NoPods != nil {
		return end{}, fmt.Errorf("%w (only pods that are endpoints of Services are known: %w)", err, r.NoPods)
	}
	if err != nil {
		return end{}, err
	}
	if p, ok := r.Directory.Pod(name.String()); ok {
		return p.end()
	}
	return r.podOfSlices(name), nil
}

func (p PodObject) end() (end, error) {
	e := end{addrs: p.Addrs, node: p.Node, what: "pod " + p.String(), process: p.HostNetwork}
	switch {
	case p.Done:
		return e, fmt.Errorf("pod %v has ended: it has no address any more", p)
	case p.Node == "":
		return e, fmt.Errorf("pod %v is not on any node yet: it has no address", p)
	case len(p.Addrs) == 0:
		return e, fmt.Errorf("pod %v has no address yet", p)
	}
	return e, nil
}

// podOfSlices describes a pod that is an endpoint.
func (r *resolver) podOfSlices(name model.NamespacedName) end {
	e := end{what: "pod " + name.String()}
	for _, s := range r.Slices {
		for i, p := range s.Endpoints {
			if s.Namespace != name.Namespace || s.Pods[i] != name.Name || len(p.Addresses) == 0 {
				continue
			}
			if a, err := model.ParseAddr(p.Addresses[0]); err == nil && !slices.Contains(e.addrs, a) {
				e.addrs = append(e.addrs, a)
			}
			e.node = cmp.Or(p.NodeName, e.node)
		}
	}
	// The order of the slices says nothing: IPv4 first.
	slices.SortStableFunc(e.addrs, func(a, b netip.Addr) int { return cmp.Compare(model.FamilyOf(a), model.FamilyOf(b)) })
	return e
}

// workload takes one pod of a workload: a ready one, the first by name.
func (r *resolver) workload(ref Ref) (end, error) {
	var among []model.NamespacedName
	for _, w := range r.Workloads {
		if w.Kind == ref.Kind {
			among = append(among, w.NamespacedName)
		}
	}
	name, err := r.find(ref.Kind, ref, among)
	if err != nil {
		return end{}, err
	}
	i := slices.IndexFunc(r.Workloads, func(w WorkloadObject) bool { return w.Kind == ref.Kind && w.NamespacedName == name })
	selector, err := metav1.LabelSelectorAsSelector(r.Workloads[i].Selector)
	if err != nil {
		return end{}, fmt.Errorf("%s %v: spec.selector: %w", ref.Kind, name, err)
	}
	pods, _ := r.Selected(name.Namespace, selector)
	all := len(pods)
	pods = slices.DeleteFunc(pods, func(p PodObject) bool { return len(p.Addrs) == 0 || p.Node == "" })
	if len(pods) == 0 {
		err := fmt.Errorf("%s %v has no pod with an address (it selects %s; %d pods match)", ref.Kind, name, selector, all)
		if r.NoPods != nil {
			err = fmt.Errorf("%s %v: its pods are not known: %w", ref.Kind, name, r.NoPods)
		}
		return end{}, err
	}
	slices.SortFunc(pods, func(a, b PodObject) int {
		return cmp.Or(after(!a.Ready, !b.Ready), after(a.Deleting, b.Deleting), strings.Compare(a.Name, b.Name))
	})
	e, err := pods[0].end()
	if len(pods) > 1 {
		e.notes = append(e.notes, fmt.Sprintf("%s is taken, one of %d pods of %s %v", pods[0].Name, len(pods), ref.Kind, name))
	} else {
		e.notes = append(e.notes, fmt.Sprintf("%s is taken, the only pod of %s %v", pods[0].Name, ref.Kind, name))
	}
	return e, err
}

// after orders false before true.
func after(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// WorkloadsOf returns the workloads of a namespace whose pods a selector matches.
func (d *Directory) WorkloadsOf(namespace string, selector labels.Selector) (list []WorkloadObject) {
	for _, w := range d.Workloads {
		if w.Namespace == namespace && selector.Matches(labels.Set(w.Labels)) {
			list = append(list, w)
		}
	}
	return list
}

// Nearly describes the few pods, or workloads, that have most of the wanted labels, or labels with
// the same keys.
func (d *Directory) Nearly(namespace string, want map[string]string) []string {
	type near struct {
		text  string
		score int
	}
	var list []near
	add := func(what string, have map[string]string) {
		n := near{}
		var differ []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			value, ok := have[key]
			switch {
			case ok && value == want[key]:
				n.score += 2
			case ok:
				n.score++
				differ = append(differ, fmt.Sprintf("%s=%s", key, value))
			default:
				differ = append(differ, "no "+key)
			}
		}
		n.text = fmt.Sprintf("%s has %s", what, strings.Join(differ, ", "))
		if n.score > 0 {
			list = append(list, n)
		}
	}
	for _, w := range d.Workloads {
		if w.Namespace == namespace {
			add(fmt.Sprintf("%s %s", w.Kind, w.Name), w.Labels)
		}
	}
	for _, p := range d.Pods {
		if p.Namespace == namespace && !p.Done {
			add("pod "+p.Name, p.Labels)
		}
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(b.score, a.score) })
	var out []string
	for _, n := range list[:min(len(list), 2)] {
		out = append(out, n.text)
	}
	return out
}
