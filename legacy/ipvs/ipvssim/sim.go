package ipvssim

import (
	"fmt"
	"net/netip"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Outcome is a modeltest.Outcome, with the virtual server.
type Outcome struct {
	modeltest.Outcome

	// Node: a socket on the node receives the packet, at the packet's own destination.
	Node bool
	// Server is the virtual server that chose; the zero value if none did.
	Server ipvs.Key
}

// Simulator runs packets through the current state of one Content.
type Simulator struct {
	content   *ipvs.Content
	nodeAddrs map[netip.Addr]bool
	loaded    *ipvs.Rules       // the loaded one
	rules     *iptsim.Simulator // of these; nil without them
	templates map[template]netip.AddrPort
}

// template is a client of a persistent virtual server. The kernel has a connection template for
// it, with the client's real server.
type template struct {
	server ipvs.Key
	client netip.Addr
}

// New checks a Content. The addresses are those of the node's interfaces other than the
// dummy device.
func New(c *ipvs.Content, nodeAddrs ...netip.Addr) (*Simulator, error) {
	s := &Simulator{content: c, nodeAddrs: map[netip.Addr]bool{}, templates: map[template]netip.AddrPort{}}
	for _, a := range nodeAddrs {
		s.nodeAddrs[a] = true
	}
	return s, s.load()
}

// Remember records the real server of a client. A virtual server that is not persistent forgets
// it at once.
func (s *Simulator) Remember(k ipvs.Key, client netip.Addr, to netip.AddrPort) {
	if s.content.Servers[k].Flags&ipvs.Persistent != 0 {
		s.templates[template{k, client}] = to
	}
}

// load parses the rules, if they differ from the loaded one.
func (s *Simulator) load() (err error) {
	c := s.content.Rules
	switch c {
	case s.loaded:
		return nil
	case nil:
		s.loaded, s.rules = nil, nil
		return nil
	}
	tables := iptsim.NewTables(s.content.Family)
	if err := tables.Restore(c.String()); err != nil {
		return err
	}
	s.rules = iptsim.NewOn(iptsim.Node{IsLocal: s.isLocal, Sets: newSets(s.content)}, tables)
	s.loaded = c
	return err
}

// isLocal reports whether an address is the node's.
func (s *Simulator) isLocal(a netip.Addr) bool { return s.nodeAddrs[a] || s.content.Addrs[a] }

// sets are a Content's ipsets, by their names in the kernel.
type sets struct {
	content *ipvs.Content
	names   map[string]ipvs.SetName
}

func newSets(c *ipvs.Content) sets {
	s := sets{c, map[string]ipvs.SetName{}}
	for name := range c.Sets {
		s.names[name.In(c.Family)] = name
	}
	return s
}

// Has implements iptsim.Sets. Sources are looked up by range.
func (s sets) Has(name, fields string, p iptsim.Packet) bool {
	set := s.names[name]
	e := entry(set, fields, p)
	if set != ipvs.Sources {
		return s.content.Sets[set][e]
	}
	for bits := e.Net.Bits(); bits > 0; bits-- { // no type of set has a prefix length of 0
		e.Net = netip.PrefixFrom(e.Net.Addr(), bits).Masked()
		if s.content.Sets[set][e] {
			return true
		}
	}
	return false
}

// entry returns the packet's key in a set: a field for each component of the set's type.
func entry(set ipvs.SetName, fields string, p iptsim.Packet) ipvs.Entry {
	whole := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	dst := p.Dest.Addr()
	switch set.Type() + " " + fields {
	case "hash:ip dst":
		return ipvs.Entry{Addr: dst}
	case "hash:ip src":
		return ipvs.Entry{Addr: p.Source}
	case "hash:ip,port dst,dst":
		return ipvs.Entry{Addr: dst, Protocol: p.Protocol, Port: p.Dest.Port()}
	case "hash:ip,port src,src":
		return ipvs.Entry{Addr: p.Source, Protocol: p.Protocol, Port: p.SourcePort}
	case "hash:ip,port,net dst,dst,src":
		return ipvs.Entry{Addr: dst, Protocol: p.Protocol, Port: p.Dest.Port(), Net: whole(p.Source)}
	case "hash:net,net src,dst":
		return ipvs.Entry{Addr: p.Source, Net: whole(dst)}
	}
	panic(fmt.Sprintf("set %s of type %s is asked by %s", set, set.Type(), fields))
}
