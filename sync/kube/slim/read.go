package slim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// The numbers of fields are those in the generated.proto of k8s.io/api and k8s.io/apimachinery.

// readSlice reads an EndpointSlice.
func (s *source) readSlice() *EndpointSlice {
	out := newSlice()
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1: // metadata
			s.sliceMeta(out)
		case 2: // endpoints
			s.endpoint(out)
		case 3: // ports
			s.port(out)
		case 4: // addressType
			out.Model.AddressType = s.text()
		}
	}
	out.Model.NamespacedName = model.NamespacedName{Namespace: out.namespace, Name: out.name}
	return out
}

func (s *source) sliceMeta(out *EndpointSlice) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			out.name = s.text()
		case 3:
			out.namespace = s.text()
		case 6:
			out.version = s.text()
		case 11: // labels
			switch key, value := s.pair(); key {
			case model.LabelServiceName, model.LabelHeadless:
				out.Model.Labels[key] = string(value)
			}
		case 12: // annotations
			switch key, value := s.pair(); key {
			case corev1.EndpointsLastChangeTriggerTime:
				out.Trigger, _ = time.Parse(time.RFC3339Nano, string(value)) // zero after an error
			case metav1.InitialEventsAnnotationKey:
				out.endsList = string(value) == "true"
			}
		}
	}
}

func (s *source) endpoint(out *EndpointSlice) {
	var e model.SliceEndpoint
	first := len(out.addresses)
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1: // addresses
			out.addresses = append(out.addresses, s.text())
		case 2: // conditions
			s.conditions(&e)
		case 6: // nodeName
			e.NodeName = s.text()
		case 8: // hints
			s.hints(&e)
		}
	}
	if n := len(out.addresses); n > first {
		e.Addresses = out.addresses[first:n:n]
	}
	out.Model.Endpoints = append(out.Model.Endpoints, e)
}

func (s *source) conditions(e *model.SliceEndpoint) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			e.Ready = s.boolean()
		case 2:
			e.Serving = s.boolean()
		case 3:
			e.Terminating = s.boolean()
		}
	}
}

func (s *source) hints(e *model.SliceEndpoint) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1: // forZones
			e.HintZones = append(e.HintZones, s.hinted())
		case 2: // forNodes
			e.HintNodes = append(e.HintNodes, s.hinted())
		}
	}
}

func (s *source) hinted() (name string) {
	for m := s.open(); s.next(&m); {
		if m.field == 1 {
			name = s.text()
		}
	}
	return name
}

func (s *source) port(out *EndpointSlice) {
	var p model.SlicePort
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			p.Name = new(s.text())
		case 2:
			p.Protocol = new(s.text())
		case 3:
			p.Port = new(int32(s.integer())) //nolint:gosec // as generated code does
		}
	}
	out.Model.Ports = append(out.Model.Ports, p)
}

// readService reads a Service by the generated function.
func (s *source) readService() *Service {
	in := new(corev1.Service)
	s.into(in)
	return From(in).(*Service)
}

// From converts an object that the standard decoder has read. It returns other objects unchanged.
func From(o runtime.Object) runtime.Object {
	switch o := o.(type) {
	case *corev1.Service:
		return &Service{Meta: metaOf(&o.ObjectMeta), Model: kube.Service(o)}
	case *discoveryv1.EndpointSlice:
		return &EndpointSlice{
			Meta: metaOf(&o.ObjectMeta), Model: kube.EndpointSlice(o), Trigger: kube.Triggered(o),
		}
	case *corev1.ServiceList:
		out := &ServiceList{ListMeta: o.ListMeta}
		for i := range o.Items {
			out.Items = append(out.Items, From(&o.Items[i]).(*Service))
		}
		return out
	case *discoveryv1.EndpointSliceList:
		out := &EndpointSliceList{ListMeta: o.ListMeta}
		for i := range o.Items {
			out.Items = append(out.Items, From(&o.Items[i]).(*EndpointSlice))
		}
		return out
	}
	return o
}

func metaOf(m *metav1.ObjectMeta) Meta {
	return Meta{
		Object: nothing, namespace: m.Namespace, name: m.Name, version: m.ResourceVersion,
		endsList: m.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}
}
