package names

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

// Directory has objects by name.
type Directory struct {
	Services []ServiceObject
	Slices   []SliceObject
	Nodes    []model.Node
	Pods     []PodObject
	// NoPods is the error that kept pods from being read; nil: those that matter are in Pods.
	NoPods error
	// Complete are the namespaces of which all pods are known.
	Complete map[string]bool

	bySlice map[model.NamespacedName]int // indexes of Slices; nil before they are needed
}

// Add adds the objects of another directory.
func (d *Directory) Add(o Directory) {
	d.Services = append(d.Services, o.Services...)
	d.Slices = append(d.Slices, o.Slices...)
	d.Nodes = append(d.Nodes, o.Nodes...)
	for _, p := range o.Pods {
		if _, ok := d.Pod(p.String()); !ok {
			d.Pods = append(d.Pods, p)
		}
	}
	d.bySlice = nil
	if o.NoPods != nil {
		d.NoPods = o.NoPods
	}
	if d.Complete == nil {
		d.Complete = map[string]bool{}
	}
	maps.Copy(d.Complete, o.Complete)
}

// Service returns a Service.
func (d *Directory) Service(name model.NamespacedName) (ServiceObject, bool) {
	for _, s := range d.Services {
		if s.NamespacedName == name {
			return s, true
		}
	}
	return ServiceObject{}, false
}

// PodOf returns the name of the pod of an endpoint in a slice, or "".
func (d *Directory) PodOf(slice model.NamespacedName, addr netip.Addr) string {
	if d.bySlice == nil {
		d.bySlice = make(map[model.NamespacedName]int, len(d.Slices))
		for i, s := range d.Slices {
			d.bySlice[s.NamespacedName] = i
		}
	}
	i, ok := d.bySlice[slice]
	if !ok {
		return ""
	}
	return cmp.Or(d.Slices[i].podAt(addr, false), d.Slices[i].podAt(addr, true))
}

// podAt returns the name of the pod of an endpoint that terminates or does not, or "".
func (s *SliceObject) podAt(addr netip.Addr, terminating bool) string {
	for i, e := range s.Endpoints {
		if has(e, addr) && s.Pods[i] != "" && ptr.Deref(e.Terminating, false) == terminating {
			return s.Namespace + "/" + s.Pods[i]
		}
	}
	return ""
}

// HasSlice reports whether a slice is there.
func (d *Directory) HasSlice(name model.NamespacedName) bool {
	return slices.ContainsFunc(d.Slices, func(s SliceObject) bool { return s.NamespacedName == name })
}

// HasPod reports whether a pod of that name is an endpoint of the slice.
func (s *SliceObject) HasPod(name string) bool { return slices.Contains(s.Pods, name) }

// HasAddr reports whether an endpoint of the slice has an address.
func (s *SliceObject) HasAddr(addr netip.Addr) bool {
	return slices.ContainsFunc(s.Endpoints, func(e model.SliceEndpoint) bool { return has(e, addr) })
}

// PodAt returns the pod that has an address, according to pods or else to slices. It is "" if none
// is known, or if the address is a node's, which several pods may share.
func (d *Directory) PodAt(addr netip.Addr) (name string) {
	for _, p := range d.Pods {
		if slices.Contains(p.Addrs, addr) && !p.HostNetwork && !p.Done {
			return p.String()
		}
	}
	for _, n := range d.Nodes {
		if slices.Contains(addrsOf(n.Addresses), addr) {
			return ""
		}
	}
	for _, terminating := range []bool{false, true} { // an older pod may have had the address
		for i := range d.Slices {
			if name := d.Slices[i].podAt(addr, terminating); name != "" {
				return name
			}
		}
	}
	return ""
}

// Pod returns a pod by namespace/name.
func (d *Directory) Pod(name string) (PodObject, bool) {
	for _, p := range d.Pods {
		if p.String() == name {
			return p, true
		}
	}
	return PodObject{}, false
}

// has reports whether an endpoint has an address: the first one, as others are not used.
func has(e model.SliceEndpoint, addr netip.Addr) bool {
	return len(e.Addresses) > 0 && slices.Contains(addrsOf(e.Addresses[:1]), addr)
}

func addrsOf(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		if a, err := model.ParseAddr(text); err == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
