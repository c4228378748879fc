package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// explainPods adds to the endpoints the facts about the Service's selector and target port, and about
// the pods, as far as they are known.
func (x *explainer) explainPods() {
	s, ok := x.in.Names.Service(x.service.NamespacedName)
	if !ok {
		return
	}
	out := x.e.Endpoints
	for i, p := range s.Ports {
		if len(s.Selector) > 0 && i < len(s.TargetPorts) && p.Name == x.d.Port.Name.Port && protocolOf(p) == x.d.Protocol {
			out.TargetPortField = fmt.Sprintf("spec.ports[%d].targetPort", i)
			out.TargetPort = cmp.Or(s.TargetPorts[i], strconv.Itoa(int(p.Port)))
		}
	}
	for _, list := range [][]Endpoint{out.Used, out.Unused} {
		for i := range list {
			if p, ok := x.in.Names.Pod(list[i].Pod); ok {
				list[i].PodReason = p.Reason
			}
		}
	}
	x.explainDeclared(s)
	if len(out.Used) == 0 {
		x.explainSelector(s)
		x.findUnlabelled()
	}
}

func protocolOf(p model.Port) model.Protocol {
	out, _ := model.ParseProtocol(p.Protocol) // the builder reports an invalid one
	return out
}

// explainDeclared compares the target port with those that the pods' containers declare.
func (x *explainer) explainDeclared(s names.ServiceObject) {
	out := x.e.Endpoints
	if out.TargetPort == "" || len(s.Selector) == 0 {
		return
	}
	var declared []names.ContainerPort
	pods, _ := x.in.Names.Selected(s.Namespace, labels.SelectorFromSet(s.Selector))
	for _, p := range pods {
		declared = append(declared, p.Ports...)
	}
	if len(pods) == 0 {
		for _, w := range x.in.Names.WorkloadsOf(s.Namespace, labels.SelectorFromSet(s.Selector)) {
			declared = append(declared, w.Ports...)
		}
	}
	for _, p := range declared {
		if p.Protocol != x.d.Protocol.String() {
			continue
		}
		text := Port{Name: p.Name, Port: p.Port, Protocol: p.Protocol}
		if !slices.Contains(out.Declared, text) {
			out.Declared = append(out.Declared, text)
		}
		if p.Name == out.TargetPort || strconv.Itoa(p.Port) == out.TargetPort {
			out.Declared = nil
			return
		}
	}
}

// explainSelector counts the pods that the Service selects, and finds those that it nearly selects.
func (x *explainer) explainSelector(s names.ServiceObject) {
	out := x.e.Endpoints
	if len(s.Selector) == 0 {
		out.NoSelector = true
		return
	}
	selector := labels.SelectorFromSet(s.Selector)
	out.Selector = selector.String()
	if !x.in.Names.Complete[s.Namespace] {
		return
	}
	pods, all := x.in.Names.Selected(s.Namespace, selector)
	matching := len(pods) + len(x.in.Names.WorkloadsOf(s.Namespace, selector))
	out.Matching, out.Pods = &matching, all
	if matching == 0 {
		out.Nearly = x.in.Names.Nearly(s.Namespace, s.Selector)
	}
}

// findUnlabelled finds slices in the Service's namespace that belong to no Service.
func (x *explainer) findUnlabelled() {
	for _, s := range x.in.Objects.EndpointSlices {
		if s.Namespace == x.service.Namespace && s.Labels[model.LabelServiceName] == "" && len(s.Endpoints) > 0 {
			x.e.Endpoints.Unlabelled = append(x.e.Endpoints.Unlabelled, s.String())
		}
	}
}

// adviseSelector says why the selector matches no pod, or returns false.
func (e *Explanation) adviseSelector() bool {
	eps, sp := e.Endpoints, e.Destination.Service
	if n := len(eps.Unlabelled); n > 0 {
		e.next("EndpointSlice %s lacks the label %s=%s: it belongs to no Service.", strings.Join(firstFew(eps.Unlabelled), ", "), model.LabelServiceName, sp.Name)
	}
	switch {
	case eps.NoSelector:
		e.next("Service %v has no selector, so somebody must create its EndpointSlices, with the label kubernetes.io/service-name=%s.", *sp, sp.Name)
	case eps.Matching == nil && eps.Selector != "":
		e.next("spec.selector of Service %v is %s. Which pods have these labels? kubectl -n %s get pods -l %s, and kubectl -n %s get pods --show-labels",
			*sp, eps.Selector, sp.Namespace, eps.Selector, sp.Namespace)
	case eps.Matching == nil:
		return false
	case *eps.Matching > 0 || len(eps.Nearly) == 0 && eps.Pods == 0:
		return false
	case len(eps.Nearly) == 0:
		e.next("spec.selector of Service %v is %s, and none of %d pods in namespace %s has one of these labels.", *sp, eps.Selector, eps.Pods, sp.Namespace)
	default:
		e.next("spec.selector of Service %v is %s, and no pod matches it. Nearest: %s.", *sp, eps.Selector, strings.Join(eps.Nearly, "; "))
	}
	return true
}

// adviseTargetPort says that the target port is none of the pods' declared ports.
func (e *Explanation) adviseTargetPort() bool {
	eps := e.Endpoints
	is := fmt.Sprintf("%s of Service %v is %s", eps.TargetPortField, *e.Destination.Service, eps.TargetPort)
	_, err := strconv.Atoi(eps.TargetPort)
	switch {
	case len(eps.Declared) == 0 && len(eps.Used) == 0 && eps.TargetPort != "" && err != nil:
		e.next("%s: has a container of its pods a port of that name? kubectl -n %s get pods -l %s -o jsonpath='{.items[*].spec.containers[*].ports}'",
			is, e.Destination.Service.Namespace, eps.Selector)
		return true
	case len(eps.Declared) == 0:
		return false
	case err != nil:
		e.next("%s, and no container of its pods has a port of that name; their ports: %s.", is, portTexts(eps.Declared))
		return true
	}
	e.next("%s, and no container of its pods declares that port; their ports: %s. Does a program listen there? --probe tells.", is, portTexts(eps.Declared))
	return true
}
