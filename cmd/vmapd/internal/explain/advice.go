package explain

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
)

// advise says why no slice has an endpoint for the Service's port.
func (x *explainer) advise() {
	s := x.service
	hasEndpoints := func(o names.SliceObject) bool { return len(o.Endpoints) > 0 }
	if slices.ContainsFunc(x.own.Slices, hasEndpoints) {
		for i, p := range s.Spec.Ports {
			if p.Name == x.d.Port.Name.Port && p.TargetPort.Type == intstr.String {
				x.next("spec.ports[%d].targetPort of Service %s is %s: "+
					"has a container of its pods a port of that name?", i, x.e.Service, p.TargetPort.StrVal)
			}
		}
		return
	}
	label := model.LabelServiceName + "=" + s.Name
	for _, o := range x.in.Objects.Slices {
		if o.Namespace == s.Namespace && o.Labels[model.LabelServiceName] == "" && hasEndpoints(o) {
			x.next("EndpointSlice %v lacks the label %s: it belongs to no Service.", o, label)
		}
	}
	if len(s.Spec.Selector) == 0 {
		x.next("Service %s has no selector, so somebody must create its EndpointSlices, with the label %s.",
			x.e.Service, label)
		return
	}
	x.next("spec.selector of Service %s is %s. Which pods have these labels? kubectl -n %s get pods --show-labels",
		x.e.Service, labels.Set(s.Spec.Selector), s.Namespace)
}
