package simulate

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// kinds are the API server's, by the plural of their names.
var kinds = map[string]string{
	"Service": "services", "EndpointSlice": "endpointslices", "Node": "nodes", "ServiceCIDR": "servicecidrs",
}

// server has the objects of a cluster and their history, and the addresses of the node.
type server struct {
	version uint64
	objects map[model.ObjectRef]modeltest.Object
	events  map[string][]event // by kind, the oldest first
	host    []netip.Addr
}

// event is one change of an object.
type event struct {
	version uint64
	deleted bool
	object  modeltest.Object
}

// change makes a change.
func (s *server) change(c modeltest.Change) {
	if c.Object == nil {
		s.host = c.Host
		return
	}
	ref := c.Object.Ref()
	was, found := s.objects[ref]
	s.version++
	e := event{s.version, c.Delete, c.Object}
	switch {
	case c.Delete && !found:
		return
	case c.Delete:
		e.object = was
		delete(s.objects, ref)
	default:
		s.objects[ref] = c.Object
	}
	s.events[kinds[ref.Kind]] = append(s.events[kinds[ref.Kind]], e)
}

// all returns the objects of a kind, sorted; of all kinds if it is "".
func (s *server) all(kind string) []modeltest.Object {
	return slices.DeleteFunc(sorted(s.objects), func(o modeltest.Object) bool {
		return kind != "" && kinds[o.Ref().Kind] != kind
	})
}

// sorted returns objects by kind, namespace and name.
func sorted(objects map[model.ObjectRef]modeltest.Object) []modeltest.Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b modeltest.Object) int {
		return cmp.Compare(a.Ref().String(), b.Ref().String())
	})
}

// after returns the events of a kind after a version.
func (s *server) after(kind string, version uint64) []event {
	all := s.events[kind]
	i, _ := slices.BinarySearchFunc(all, version+1, func(e event, v uint64) int { return cmp.Compare(e.version, v) })
	return all[i:]
}
