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

// advisePort is for a Service whose slices do not offer its port.
func (x *explainer) advisePort() {
	if x.adviseTargetPort() {
		return
	}
	ns, name := x.service.Namespace, x.service.Name
	x.next("The name and protocol of a Service's port must match those in its slices: kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -o yaml", ns, name)
	x.next("A slice also lacks the port if its targetPort is a name that no container has: kubectl -n %s get service %s -o jsonpath='{.spec.ports}'", ns, name)
}

// adviseTargetPort says that the target port is none of those that the pods' containers declare, or returns false.
func (x *explainer) adviseTargetPort() bool {
	s, _ := x.in.Names.Service(x.service.NamespacedName)
	i := slices.IndexFunc(s.Ports, func(p model.Port) bool {
		protocol, _ := model.ParseProtocol(p.Protocol) // the builder reports an invalid one
		return p.Name == x.d.Port.Name.Port && protocol == x.d.Protocol
	})
	if i < 0 || i >= len(s.TargetPorts) || len(s.Selector) == 0 {
		return false
	}
	target := cmp.Or(s.TargetPorts[i], strconv.Itoa(int(s.Ports[i].Port)))
	var declared []string
	pods, _ := x.in.Names.Selected(s.Namespace, s.Selector)
	for _, p := range pods {
		for _, port := range p.Ports {
			protocol, err := model.ParseProtocol(port.Protocol)
			if err != nil || protocol != x.d.Protocol {
				continue
			}
			if port.Name == target || strconv.Itoa(int(port.Port)) == target {
				return false
			}
			if text := portText(port.Name, int(port.Port), protocol.String()); !slices.Contains(declared, text) {
				declared = append(declared, text)
			}
		}
	}
	is := fmt.Sprintf("spec.ports[%d].targetPort of Service %s is %s", i, x.e.Service, target)
	_, err := strconv.Atoi(target)
	switch {
	case len(declared) == 0 && x.d.Verdict != model.Forwarded && err != nil:
		x.next("%s: has a container of its pods a port of that name? kubectl -n %s get pods -l %s -o jsonpath='{.items[*].spec.containers[*].ports}'",
			is, s.Namespace, labels.SelectorFromSet(s.Selector))
	case len(declared) == 0:
		return false
	case err != nil:
		x.next("%s, and no container of its pods has a port of that name; their ports: %s.", is, strings.Join(declared, ", "))
	default:
		x.next("%s, and no container of its pods declares that port; their ports: %s. Does a program listen there? vmapd trace shows it.",
			is, strings.Join(declared, ", "))
	}
	return true
}

// adviseSelector says why the selector matches no pod.
func (x *explainer) adviseSelector() {
	s, known := x.in.Names.Service(x.service.NamespacedName)
	var unlabelled []string // slices in the Service's namespace that belong to no Service
	for _, slice := range x.in.Objects.EndpointSlices {
		if slice.Namespace == s.Namespace && slice.Labels[model.LabelServiceName] == "" && len(slice.Endpoints) > 0 {
			unlabelled = append(unlabelled, slice.String())
		}
	}
	if len(unlabelled) > 0 {
		x.next("EndpointSlice %s lacks the label %s=%s: it belongs to no Service.", firstFew(unlabelled), model.LabelServiceName, s.Name)
	}
	is := fmt.Sprintf("spec.selector of Service %s is %s", x.e.Service, labels.SelectorFromSet(s.Selector))
	matching, all := x.in.Names.Selected(s.Namespace, s.Selector)
	near := names.Nearly(all, s.Selector)
	switch {
	case known && len(s.Selector) == 0:
		x.next("Service %s has no selector, so somebody must create its EndpointSlices, with the label kubernetes.io/service-name=%s.", x.e.Service, s.Name)
	case !known || len(matching) > 0 || x.in.Names.Complete[s.Namespace] && len(all) == 0:
		x.next("Which pods does the Service select? kubectl -n %s get service %s -o jsonpath='{.spec.selector}', and kubectl -n %[1]s get pods --show-labels",
			x.service.Namespace, x.service.Name)
	case !x.in.Names.Complete[s.Namespace]:
		x.next("%s. Which pods have these labels? kubectl -n %s get pods -l %s, and kubectl -n %s get pods --show-labels",
			is, s.Namespace, labels.SelectorFromSet(s.Selector), s.Namespace)
	case len(near) == 0:
		x.next("%s, and none of %d pods in namespace %s has one of these labels.", is, len(all), s.Namespace)
	default:
		x.next("%s, and no pod matches it. Nearest: %s.", is, strings.Join(near, "; "))
	}
}
