package slim

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// The wanted fields of each type, by their numbers in the generated.proto of k8s.io/api and
// k8s.io/apimachinery.
var (
	listFields   = fields{1: "metadata", 2: "items"}
	metaFields   = fields{1: "name", 3: "namespace", 6: "resourceVersion", 8: "creationTimestamp", 11: "labels", 12: "annotations"}
	metaOfSlice  = fields{1: "name", 3: "namespace", 6: "resourceVersion", 11: "labels", 12: "annotations"}
	sliceFields  = fields{1: "metadata", 2: "endpoints", 3: "ports", 4: "addressType"}
	portFields   = fields{1: "name", 2: "protocol", 3: "port"}
	podFields    = fields{1: "addresses", 2: "conditions", 6: "nodeName", 8: "hints"}
	stateFields  = fields{1: "ready", 2: "serving", 3: "terminating"}
	hintFields   = fields{1: "forZones", 2: "forNodes"}
	hintedFields = fields{1: "name"}
	servFields   = fields{1: "metadata", 2: "spec", 3: "status"}
)

// readSlice reads an EndpointSlice.
func (s *source) readSlice() *EndpointSlice {
	out := newSlice()
	for m := s.open(); s.next(&m, sliceFields); out.sum = addSum(out.sum, m.field, s.raw(&m)) {
		switch m.field {
		case 1:
			s.sliceMeta(out)
		case 2:
			for l := s.list(); s.item(&l); {
				s.endpoint(out)
			}
		case 3:
			for l := s.list(); s.item(&l); {
				s.port(out)
			}
		case 4:
			out.Model.AddressType = string(s.text())
		}
	}
	out.Model.NamespacedName = model.NamespacedName{Namespace: out.namespace, Name: out.name}
	return out
}

func (s *source) sliceMeta(out *EndpointSlice) {
	for m := s.open(); s.next(&m, metaOfSlice); {
		if out.meta(s, m.field) {
			continue
		}
		for p := s.pairs(); ; {
			k, v, ok := s.pair(&p)
			if !ok {
				break
			}
			if m.field == 12 {
				out.annotation(string(k), v)
				if string(k) == corev1.EndpointsLastChangeTriggerTime {
					out.Trigger, _ = time.Parse(time.RFC3339Nano, string(v)) // zero after an error
				}
				continue
			}
			switch string(k) {
			case model.LabelServiceName, model.LabelHeadless:
				out.Model.Labels[string(k)] = string(v)
			}
		}
	}
}

// meta reads a field of the metadata, and reports whether it is one of those that all kinds have.
func (m *Meta) meta(s *source, field int) bool {
	switch field {
	case 1:
		m.name = string(s.text())
	case 3:
		m.namespace = string(s.text())
	case 6:
		m.version = string(s.text())
	default:
		return false
	}
	return true
}

func (m *Meta) annotation(key string, value []byte) {
	if key == metav1.InitialEventsAnnotationKey {
		m.endsList = string(value) == "true"
	}
}

func (s *source) endpoint(out *EndpointSlice) {
	var e model.SliceEndpoint
	first := len(out.addresses)
	for m := s.open(); s.next(&m, podFields); {
		switch m.field {
		case 1:
			for l := s.list(); s.item(&l); {
				out.addresses = append(out.addresses, string(s.text()))
			}
		case 2:
			for m := s.open(); s.next(&m, stateFields); {
				switch m.field {
				case 1:
					e.Ready = s.boolean()
				case 2:
					e.Serving = s.boolean()
				case 3:
					e.Terminating = s.boolean()
				}
			}
		case 6:
			e.NodeName = string(s.text())
		case 8:
			s.hints(&e)
		}
	}
	if n := len(out.addresses); n > first {
		e.Addresses = out.addresses[first:n:n]
	}
	out.Model.Endpoints = append(out.Model.Endpoints, e)
}

func (s *source) hints(e *model.SliceEndpoint) {
	for m := s.open(); s.next(&m, hintFields); {
		to := &e.HintZones
		if m.field == 2 {
			to = &e.HintNodes
		}
		for l := s.list(); s.item(&l); {
			name := ""
			for m := s.open(); s.next(&m, hintedFields); {
				name = string(s.text())
			}
			*to = append(*to, name)
		}
	}
}

func (s *source) port(out *EndpointSlice) {
	var p model.SlicePort
	for m := s.open(); s.next(&m, portFields); {
		switch m.field {
		case 1:
			p.Name = s.optional()
		case 2:
			p.Protocol = s.optional()
		case 3:
			p.Port = s.integer()
		}
	}
	out.Model.Ports = append(out.Model.Ports, p)
}

// optional reads a string, nil if it is null.
func (s *source) optional() *string {
	if s.json && s.null() {
		return nil
	}
	return new(string(s.text()))
}

// readService reads a Service. Its metadata is long and its spec short, which may have further
// fields that matter one day: so the generated code reads spec and status.
func (s *source) readService() *Service {
	in := spare.Get().(*corev1.Service)
	out := &Service{Meta: Meta{Object: nothing}}
	for m := s.open(); s.next(&m, servFields); out.sum = addSum(out.sum, m.field, s.raw(&m)) {
		switch m.field {
		case 1:
			s.serviceMeta(out, &in.ObjectMeta)
		case 2:
			s.into(&m, &in.Spec)
		case 3:
			s.into(&m, &in.Status)
		}
	}
	in.Namespace, in.Name = out.namespace, out.name
	out.Model = kube.Service(in)
	*in = corev1.Service{}
	spare.Put(in)
	return out
}

func (s *source) serviceMeta(out *Service, in *metav1.ObjectMeta) {
	for m := s.open(); s.next(&m, metaFields); {
		if out.meta(s, m.field) {
			continue
		}
		if m.field == 8 {
			s.into(&m, &in.CreationTimestamp)
			continue
		}
		to := &in.Labels
		if m.field == 12 {
			to = &in.Annotations
		}
		for p := s.pairs(); ; {
			k, v, ok := s.pair(&p)
			if !ok {
				break
			}
			if m.field == 12 {
				out.annotation(string(k), v)
			}
			if forProxies(string(k)) {
				if *to == nil {
					*to = map[string]string{}
				}
				(*to)[string(k)] = string(v)
			}
		}
	}
}

// forProxies reports whether a label or an annotation of a Service may be for a proxy.
func forProxies(key string) bool {
	return strings.HasPrefix(key, "service.kubernetes.io/") || strings.HasPrefix(key, "vmapd.io/")
}

// From converts an object that the standard decoder has read. It returns other objects unchanged.
func From(o runtime.Object) runtime.Object {
	switch o := o.(type) {
	case *corev1.Service:
		return &Service{Meta: metaOf(&o.ObjectMeta, sumOf(o, o.ResourceVersion)), Model: kube.Service(o)}
	case *discoveryv1.EndpointSlice:
		return &EndpointSlice{
			Meta: metaOf(&o.ObjectMeta, sumOf(o, o.ResourceVersion)), Model: kube.EndpointSlice(o), Trigger: kube.Triggered(o),
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

func metaOf(m *metav1.ObjectMeta, sum uint64) Meta {
	return Meta{
		Object: nothing, namespace: m.Namespace, name: m.Name, version: m.ResourceVersion,
		endsList: m.Annotations[metav1.InitialEventsAnnotationKey] == "true", sum: sum,
	}
}
