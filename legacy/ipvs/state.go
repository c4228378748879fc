package ipvs

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/persist"
)

// A State is the desired content of IPVS, the ipsets, the dummy device and the rules for a snapshot. It is immutable,
// and shares unchanged parts with the State before it.
type State struct {
	Family  model.Family
	Options Options // with defaults
	Rules   *Rules

	snapshot  *model.FamilySnapshot
	frontends persist.Map[Key, frontend]   // of Services' own addresses
	nodePorts persist.Map[Key, frontend]   // at each of the node's addresses that answer on node ports
	addrs     persist.Map[netip.Addr, int] // for the device, with the number of their users
}

// frontend points to a frontend by its index in its service port.
type frontend struct {
	port  *model.ServicePort
	place int
}

// Compile translates a snapshot. After a State with the same options and settings of the node, the cost depends on the
// changes between the snapshots. before may be nil.
func Compile(before *State, s *model.FamilySnapshot, o Options) *State {
	next := &State{Family: s.Family, Options: o.withDefaults(), snapshot: s}
	if before != nil && before.snapshot.Settings == s.Settings {
		next.Rules = before.Rules
	} else {
		before = &State{snapshot: &model.FamilySnapshot{Settings: s.Settings}}
		next.Rules = compileRules(s.Family, s.Settings, next.Options)
	}
	e := stateEdit{
		s.Settings, before.frontends.Edit(model.VIPKeys), before.nodePorts.Edit(model.VIPKeys),
		before.addrs.Edit(model.AddrKeys),
	}
	// It removes before it adds, because an address may move from one Service to another.
	for c := range s.ServicePortChanges(before.snapshot) {
		if c.InOld {
			e.count(c.Old, -1)
		}
	}
	for c := range s.ServicePortChanges(before.snapshot) {
		if c.InNew {
			e.count(c.New, +1)
		}
	}
	for c := range s.ClusterIPs.Changes(model.AddrKeys, before.snapshot.ClusterIPs) {
		if c.InOld {
			e.countAddr(c.Key, -1)
		} else {
			e.countAddr(c.Key, +1)
		}
	}
	next.frontends, next.nodePorts, next.addrs = e.frontends.Done(), e.nodePorts.Done(), e.addrs.Done()
	return next
}

// stateEdit collects the changes from one State to the next.
type stateEdit struct {
	*model.Settings
	frontends, nodePorts *persist.Edit[Key, frontend]
	addrs                *persist.Edit[netip.Addr, int]
}

// count adds a service port (+1), or removes it (-1).
func (e *stateEdit) count(sp *model.ServicePort, by int) {
	for i, fe := range sp.Frontends {
		edit, addrs := e.nodePorts, e.NodePortAddrs
		if fe.Kind != model.NodePort {
			edit, addrs = e.frontends, []netip.Addr{fe.VIP.Addr}
			e.countAddr(fe.VIP.Addr, by)
		}
		for _, fe.VIP.Addr = range addrs {
			if by > 0 {
				edit.Set(fe.VIP, frontend{sp, i})
			} else {
				edit.Delete(fe.VIP)
			}
		}
	}
}

// countAddr adds a user of an address, or removes one. An address of the node is not for the device: its other ports
// belong to the node's processes.
func (e *stateEdit) countAddr(a netip.Addr, by int) {
	users, _ := e.addrs.Get(a)
	switch users += by; {
	case slices.Contains(e.NodeAddrs, a):
	case users == 0:
		e.addrs.Delete(a)
	default:
		e.addrs.Set(a, users)
	}
}

// at returns the frontend of an address, protocol and port. A Service's own address has priority over a node port: it
// may be one of the node's as well.
func (s *State) at(k Key) (frontend, bool) {
	if f, ok := s.frontends.Get(model.VIPKeys, k); ok {
		return f, true
	}
	return s.nodePorts.Get(model.VIPKeys, k)
}

// Owner returns the service port that has a virtual server.
func (s *State) Owner(k Key) (model.ServicePortName, bool) {
	f, ok := s.at(k)
	if !ok {
		return model.ServicePortName{}, false
	}
	return f.port.Name, true
}

// addKey adds everything about one address, protocol and port to a Content.
func (s *State) addKey(c *Content, k Key) {
	f, ok := s.at(k)
	if !ok {
		return
	}
	sp, fe := f.port, f.port.Frontends[f.place]
	e := Entry{Addr: k.Addr, Protocol: k.Protocol, Port: k.Port}
	c.Servers[k] = s.Options.addrServer(sp, fe)
	c.add(Services, e)
	switch {
	case fe.Action == model.Drop && fe.ShortCircuit:
		c.add(DiscardOutside, e)
	case fe.Action == model.Drop:
		c.add(Discard, e)
	case fe.Action == model.Reject:
		c.add(Refuse, e)
	}
	switch {
	case len(c.Servers[k].Real) == 0:
	case fe.SourceNAT == model.MasqueradeAlways:
		c.add(Masquerade, e)
	case fe.SourceNAT == model.MasqueradeOutside:
		c.add(MasqueradeOutside, e)
	case fe.SourceNAT == model.MasqueradeNode:
		c.add(MasqueradeNode, e)
	}
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

// addAddr adds an address of the device.
func (c *Content) addAddr(a netip.Addr) {
	c.add(Addrs, Entry{Addr: a})
	c.Addrs[a] = true
}

// Content returns all of the state.
func (s *State) Content() *Content {
	c := NewContent(s.Family)
	c.Device, c.Rules, c.Timeouts = true, s.Rules, s.Options.Timeouts
	for _, sysctl := range s.Options.Sysctls(s.Family) {
		c.Sysctls[sysctl.Name] = sysctl.Value
	}
	for _, name := range SetNames {
		c.Sets[name] = map[Entry]bool{}
	}
	for _, keys := range [...]persist.Map[Key, frontend]{s.frontends, s.nodePorts} {
		for k := range keys.All() {
			s.addKey(c, k)
		}
	}
	for a := range s.addrs.All() {
		c.addAddr(a)
	}
	for a := range s.snapshot.Hairpins.All() {
		c.add(Hairpin, hairpinEntry(a))
	}
	return c
}

// A Content has a kernel's objects of one family, or a part of them: the desired ones of a State,
// those that were read back, or those after half a plan.
type Content struct {
	Family   model.Family
	Device   bool                       // whether the dummy device is there
	Rules    *Rules                     // nil if its chains are missing or different
	Sysctls  map[string]string          // known values
	Timeouts Timeouts                   // IPVS's
	Addrs    map[netip.Addr]bool        // on the device
	Sets     map[SetName]map[Entry]bool // a set that exists is not nil
	Servers  map[Key]Server
}

// NewContent returns an empty Content.
func NewContent(f model.Family) *Content {
	return &Content{
		Family: f, Sysctls: map[string]string{}, Addrs: map[netip.Addr]bool{},
		Sets: map[SetName]map[Entry]bool{}, Servers: map[Key]Server{},
	}
}

func (c *Content) add(set SetName, e Entry) {
	if c.Sets[set] == nil {
		c.Sets[set] = map[Entry]bool{}
	}
	c.Sets[set][e] = true
}

// Key identifies a virtual server by its address, protocol and port. Those by packet marks are other programs'.
type Key = model.VIP

// Flags of a virtual server have the kernel's numbers (IP_VS_SVC_F_…).
type Flags uint32

// The flags. Those of the schedulers sh and mh have the same numbers.
const (
	Persistent Flags = 1 << 0
	Fallback   Flags = 1 << 3 // IP_VS_SVC_F_SCHED1: sh-fallback, mh-fallback
	HashPort   Flags = 1 << 4 // IP_VS_SVC_F_SCHED2: sh-port, mh-port
)

// A Server is a virtual server. Its persistence is always for the whole client address.
type Server struct {
	Scheduler string
	Flags     Flags
	Timeout   time.Duration          // of persistence; whole seconds, 0 without Persistent
	Real      map[netip.AddrPort]int // weights of its real servers; all use NAT (ipvsadm -m)
}

// sameAs reports whether two servers are configured alike, apart from their real servers.
func (s Server) sameAs(o Server) bool {
	return s.Scheduler == o.Scheduler && s.Flags == o.Flags && s.Timeout == o.Timeout
}

// weight is the weight of every real server, since Services have no weights. A real server that drains has 0.
const weight = 1

// addrServer returns the virtual server for a frontend's address. A frontend that refuses or drops keeps its virtual
// server, for the connections of real servers that drain. The rules stop new connections, but those from inside
// to a frontend with ShortCircuit: they have no endpoint on this node, and get the cluster's.
func (o Options) addrServer(sp *model.ServicePort, fe model.Frontend) Server {
	// IPVS has no scheduler that chooses at random.
	s := Server{Scheduler: o.Scheduler, Timeout: sp.Affinity, Real: map[netip.AddrPort]int{}}
	if sp.Algorithm.HasTable() {
		s.Scheduler = "mh"
	}
	if s.Scheduler == "sh" || s.Scheduler == "mh" {
		// A real server that drains has weight 0 and stays in the table: without it, its clients would be refused
		// (ip_vs_sh_get).
		s.Flags |= Fallback
	}
	if s.Scheduler == "mh" && sp.Algorithm != model.Maglev {
		s.Flags |= HashPort // as with kube-proxy
	}
	if sp.Affinity > 0 {
		s.Flags |= Persistent
	}
	list := model.Cluster
	if fe.Action == model.Forward {
		list = fe.TrafficPolicy
	}
	if fe.Action == model.Forward || fe.ShortCircuit {
		for e := range sp.In(list) {
			s.Real[e.Addr] = weight
		}
	}
	return s
}

// drains reports whether a real server that leaves may finish its connections. Those of UDP
// and SCTP have no end to wait for. dh does not look for another real server if its table has
// one of weight 0, so new clients would be refused meanwhile.
func drains(k Key, s Server) bool { return k.Protocol == model.TCP && s.Scheduler != "dh" }
