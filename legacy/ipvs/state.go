package ipvs

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// A State is the desired content of IPVS, the ipsets, the dummy device and the companion for a
// snapshot. It is immutable, and shares unchanged parts with the State before it.
type State struct {
	Family    model.Family
	Options   Options // with defaults
	Companion *Companion

	snapshot  *model.FamilySnapshot
	frontends persist.Map[model.VIP, frontend]
	addrs     persist.Map[netip.Addr, users]

	// marks has the packet marks of service ports that need one for connections from inside,
	// and owners is its inverse.
	marks  persist.Map[model.ServicePortName, uint32]
	owners persist.Map[uint32, model.ServicePortName]
}

// frontend points to a frontend by its index in its service port.
type frontend struct {
	port  *model.ServicePort
	place int
}

func (f frontend) get() model.Frontend { return f.port.Frontends[f.place] }

// users counts the reasons to have an address.
type users struct {
	frontends int
	clusterIP bool
}

// Marks knows the packet marks of service ports. It is a *State, or a *Content that was read
// from the kernel.
type Marks interface {
	markOf(sp *model.ServicePort) uint32 // 0 for none
}

// Compile translates a snapshot. Service ports keep the packet marks that they have in before:
// the State compiled from an earlier snapshot, a Content read from the kernel, or nil.
//
// After an earlier State with the same options, the cost depends on the changes between the
// snapshots.
func Compile(before Marks, s *model.FamilySnapshot, o Options) *State {
	o = o.WithDefaults()
	old, ok := before.(*State)
	if !ok || old == nil || !reflect.DeepEqual(old.Options, o) {
		old = &State{Family: s.Family, snapshot: &model.FamilySnapshot{Family: s.Family}}
	}
	next := *old
	next.Options, next.snapshot = o, s
	if s.Settings != old.snapshot.Settings {
		next.Companion = companion(s.Family, s.Settings, o)
		if next.Companion.equal(old.Companion) {
			next.Companion = old.Companion
		}
	}
	changes := slices.Collect(s.ServicePortChanges(old.snapshot))
	next.setFrontends(old, changes)
	next.setMarks(before, changes)
	return &next
}

// setFrontends updates frontends and addresses. It removes before it adds, because an address
// may move from one Service to another.
func (s *State) setFrontends(old *State, changes []model.Change[*model.ServicePort]) {
	frontends, addrs := s.frontends.Edit(model.VIPKeys), s.addrs.Edit(model.AddrKeys)
	change := func(a netip.Addr, n int, clusterIP bool) {
		u, _ := addrs.Get(a)
		if u.frontends += n; n == 0 {
			u.clusterIP = clusterIP
		}
		if u == (users{}) {
			addrs.Delete(a)
		} else {
			addrs.Set(a, u)
		}
	}
	for _, c := range changes {
		for _, fe := range frontendsOf(c.Old) {
			frontends.Delete(fe.VIP)
			if !fe.VIP.Addr.IsUnspecified() {
				change(fe.VIP.Addr, -1, false)
			}
		}
	}
	for _, c := range changes {
		for i, fe := range frontendsOf(c.New) {
			frontends.Set(fe.VIP, frontend{c.New, i})
			if !fe.VIP.Addr.IsUnspecified() {
				change(fe.VIP.Addr, +1, false)
			}
		}
	}
	for c := range s.snapshot.ClusterIPChanges(old.snapshot) {
		if c.Old.IsValid() {
			change(c.Old, 0, false)
		} else {
			change(c.New, 0, true)
		}
	}
	s.frontends, s.addrs = frontends.Done(), addrs.Done()
}

func frontendsOf(sp *model.ServicePort) []model.Frontend {
	if sp == nil {
		return nil
	}
	return sp.Frontends
}

var markKeys = persist.KeyFuncs[uint32]{Hash: func(m uint32) uint64 { return uint64(m) }, Compare: cmp.Compare[uint32]}

// setMarks gives marks to service ports that need one, and takes them from others only then. So
// no mark changes its owner within one plan.
func (s *State) setMarks(before Marks, changes []model.Change[*model.ServicePort]) {
	marks, owners := s.marks.Edit(model.ServicePortKeys), s.owners.Edit(markKeys)
	give := func(name model.ServicePortName, mark uint32) {
		marks.Set(name, mark)
		owners.Set(mark, name)
	}
	if have, ok := before.(*Content); ok && have != nil {
		for _, c := range changes {
			if m := have.markOf(c.New); needsMark(c.New) && s.Options.owns(m) {
				if _, taken := owners.Get(m); !taken {
					give(c.New.Name, m)
				}
			}
		}
	}
	for _, c := range changes {
		if !needsMark(c.New) {
			continue
		}
		if _, ok := marks.Get(c.New.Name); ok {
			continue
		}
		n := uint32(model.ServicePortKeys.Hash(c.New.Name) >> 32)
		for {
			n++
			m := s.Options.inside(n)
			if _, taken := owners.Get(m); !taken && m != s.Options.InsideMark {
				give(c.New.Name, m)
				break
			}
		}
	}
	for _, c := range changes {
		if c.Old == nil || needsMark(c.New) {
			continue
		}
		if m, ok := marks.Get(c.Old.Name); ok {
			marks.Delete(c.Old.Name)
			owners.Delete(m)
		}
	}
	s.marks, s.owners = marks.Done(), owners.Done()
}

// owns reports whether a mark can be one of ours.
func (o Options) owns(mark uint32) bool {
	return mark&insideMask == o.InsideMark && mark != o.InsideMark && mark&(o.MasqueradeMark|kubeMarks) == 0
}

func needsMark(sp *model.ServicePort) bool {
	return slices.ContainsFunc(frontendsOf(sp), func(fe model.Frontend) bool { return fe.ShortCircuit })
}

// markOf implements Marks.
func (s *State) markOf(sp *model.ServicePort) uint32 {
	m, _ := s.marks.Get(model.ServicePortKeys, sp.Name)
	return m
}

// markOf implements Marks.
func (c *Content) markOf(sp *model.ServicePort) uint32 {
	for _, fe := range frontendsOf(sp) {
		if m := c.Sets[Inside][vipEntry(keyOf(fe.VIP))]; m != 0 {
			return m
		}
	}
	return 0
}

// at returns the frontend of an address, protocol and port. A Service's own address precedes
// node ports: it may be one of the node's as well.
func (s *State) at(k Key) (frontend, bool) {
	fe, ok := s.frontends.Get(model.VIPKeys, k.vip())
	if !ok && slices.Contains(s.settings().NodePortAddrs, k.Addr) {
		fe, ok = s.frontends.Get(model.VIPKeys, model.VIP{Addr: s.Family.Unspecified(), Protocol: k.Protocol, Port: k.Port})
	}
	return fe, ok
}

// settings returns the snapshot's; those of an empty State are zero.
func (s *State) settings() *model.Settings {
	if s.snapshot.Settings == nil {
		return &model.Settings{}
	}
	return s.snapshot.Settings
}

// Keys returns the keys of the virtual servers of a service port.
func (s *State) Keys(name model.ServicePortName) (keys []Key) {
	sp, ok := s.snapshot.ServicePort(name)
	if !ok {
		return nil
	}
	if m := s.markOf(sp); m != 0 {
		keys = append(keys, markKey(s.Family, m))
	}
	for _, fe := range sp.Frontends {
		for _, k := range s.keysOf(fe.VIP) {
			if owner, ok := s.at(k); ok && owner.port == sp {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Owner returns the service port that has a virtual server.
func (s *State) Owner(k Key) (model.ServicePortName, bool) {
	if k.Mark != 0 {
		return s.owners.Get(markKeys, k.Mark)
	}
	f, ok := s.at(k)
	if !ok {
		return model.ServicePortName{}, false
	}
	return f.port.Name, true
}

// keysOf returns the keys of a frontend: its own address or, for a node port, each of the node's
// addresses that answer on node ports.
func (s *State) keysOf(v model.VIP) []Key {
	if !v.Addr.IsUnspecified() {
		return []Key{keyOf(v)}
	}
	addrs := s.settings().NodePortAddrs
	keys := make([]Key, 0, len(addrs))
	for _, a := range addrs {
		keys = append(keys, Key{Addr: a, Protocol: v.Protocol, Port: v.Port})
	}
	return keys
}

// addKey adds everything about one address, protocol and port to a Content.
func (s *State) addKey(c *Content, k Key) {
	f, ok := s.at(k)
	if !ok {
		return
	}
	sp, fe, e := f.port, f.get(), vipEntry(k)
	c.Servers[k] = s.Options.addrServer(sp, fe)
	c.add(Services, e)
	if fe.ShortCircuit {
		c.addMarked(Inside, e, s.markOf(sp))
	}
	switch {
	case fe.Action == model.Drop:
		c.add(Discard, e)
	case fe.Action == model.Reject && !fe.ShortCircuit: // the filter table knows no inside
		c.add(Refuse, e)
	}
	switch {
	case fe.Action != model.Forward:
	case fe.SourceNAT == model.MasqueradeAlways:
		c.add(Masquerade, e)
	case fe.SourceNAT == model.MasqueradeOutside:
		c.add(MasqueradeOutside, e)
	} // MasqueradeNode only occurs with ShortCircuit, where the mark requests it
	if fe.Restricted {
		c.add(Restricted, e)
		for _, p := range sp.Allowed(fe) {
			for _, half := range halves(p) {
				e.Net = half
				c.add(Sources, e)
			}
		}
	}
}

// addMark adds the virtual server for connections from inside to a service port.
func (s *State) addMark(c *Content, sp *model.ServicePort) {
	if needsMark(sp) {
		c.Servers[markKey(s.Family, s.markOf(sp))] = s.Options.markServer(sp)
	}
}

// addAddr adds an address of a Service to the device, unless another device of the node has it: then its
// other ports belong to the node's processes.
func (s *State) addAddr(c *Content, a netip.Addr) {
	if _, ok := s.addrs.Get(model.AddrKeys, a); !ok || slices.Contains(s.settings().NodeAddrs, a) {
		return
	}
	c.add(Addrs, Entry{Addr: a})
	c.Addrs[a] = true
}

// Content returns all of the state.
func (s *State) Content() *Content {
	c := NewContent(s.Family)
	c.Device, c.Companion, c.Timeouts = s.Options.Device, s.Companion, s.Options.Timeouts
	for _, sysctl := range s.Options.Sysctls(s.Family) {
		c.Sysctls[sysctl.Name] = sysctl.Value
	}
	for _, name := range SetNames {
		c.Sets[name] = map[Entry]uint32{}
	}
	for v := range s.frontends.All() {
		for _, k := range s.keysOf(v) {
			s.addKey(c, k)
		}
	}
	for sp := range s.snapshot.ServicePorts() {
		s.addMark(c, sp)
	}
	for a := range s.addrs.All() {
		s.addAddr(c, a)
	}
	for a := range s.snapshot.Hairpins() {
		c.add(Hairpin, hairpinEntry(a))
	}
	for v := range s.snapshot.ServiceEndpoints() {
		c.add(Endpoints, endpointEntry(v))
	}
	return c
}
