package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Part is a virtual server, an ipset or a chain of the companion, as far as it is about one service port.
type Part struct {
	Kind    PartKind
	Name    string
	Comment string   // its purpose
	Lines   []string // real servers, entries or rules
	More    int      // further lines
}

// PartKind is the kind of a Part.
type PartKind string

// The kinds.
const (
	VirtualServer PartKind = "virtual server"
	Set           PartKind = "ipset"
	RuleChain     PartKind = "chain"
)

// Excerpt returns the parts that connections to a service port meet, in the order in which they meet them, with at most
// so many lines of each: ipsets with its entries, the rules that look into these, and its virtual servers.
// Its cost does not depend on other service ports.
func (s *State) Excerpt(name model.ServicePortName, most int) []Part {
	sp, ok := s.snapshot.ServicePort(name)
	if !ok {
		return nil
	}
	c := s.contentOf(sp)
	e := excerpt{State: s, Content: c, most: most}
	e.sets(Restricted, Sources, Masquerade, MasqueradeOutside, Inside, Discard)
	e.chain("mangle", servicesChain)
	e.sets(Refuse, Addrs, Services)
	e.chain("filter", filterChain)
	e.servers()
	e.sets(Hairpin)
	e.chain("nat", postroutingChain)
	return e.parts
}

// Keys returns the keys of the virtual servers of a service port.
func (s *State) Keys(name model.ServicePortName) []Key {
	sp, ok := s.snapshot.ServicePort(name)
	if !ok {
		return nil
	}
	return slices.SortedFunc(maps.Keys(s.contentOf(sp).Servers), compareKeys)
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

// contentOf returns the part of the content that is about one service port.
func (s *State) contentOf(sp *model.ServicePort) *Content {
	c := NewContent(s.Family)
	for _, fe := range sp.Frontends {
		for _, k := range s.keysOf(fe.VIP) {
			if owner, ok := s.at(k); ok && owner.port == sp {
				s.addKey(c, k)
			}
		}
		if !fe.VIP.Addr.IsUnspecified() {
			s.addAddr(c, fe.VIP.Addr)
		}
	}
	s.addMark(c, sp)
	for _, e := range sp.Endpoints {
		if e.Hairpin {
			c.add(Hairpin, hairpinEntry(e.Addr.Addr()))
		}
	}
	return c
}

// excerpt collects parts.
type excerpt struct {
	*State
	*Content
	most  int
	parts []Part
}

func (e *excerpt) add(p Part) {
	p.More = max(0, len(p.Lines)-e.most)
	p.Lines = p.Lines[:len(p.Lines)-p.More]
	e.parts = append(e.parts, p)
}

// sets adds ipsets that have entries.
func (e *excerpt) sets(names ...SetName) {
	for _, name := range names {
		entries := e.Sets[name]
		if len(entries) == 0 {
			continue
		}
		p := Part{Kind: Set, Name: name.In(e.State.Family), Comment: purposes[name]}
		for _, entry := range slices.SortedFunc(maps.Keys(entries), compareEntries) {
			line := entry.String()
			if name.HasMarks() {
				line += fmt.Sprintf(" skbmark %#x", entries[entry])
			}
			p.Lines = append(p.Lines, line)
		}
		e.add(p)
	}
}

// chain adds a chain of the companion, without rules that look into a set without entries, and the chains to
// which its rules lead.
func (e *excerpt) chain(table, name string) {
	p := Part{Kind: RuleChain, Name: table + " " + name, Comment: chainPurposes[name]}
	i := slices.IndexFunc(e.State.Companion.Chains, func(c Chain) bool { return c.Table == table && c.Name == name })
	if i < 0 || slices.ContainsFunc(e.parts, func(have Part) bool { return have.Name == p.Name }) {
		return
	}
	for _, rule := range e.State.Companion.Chains[i].Rules {
		if e.looks(rule) {
			p.Lines = append(p.Lines, rule)
		}
	}
	if len(p.Lines) == 0 {
		return
	}
	e.add(p)
	for _, rule := range p.Lines {
		_, target, _ := strings.Cut(rule, "-j ")
		e.chain(table, target)
	}
}

// looks reports whether a rule looks into no set, or into one with entries first.
func (e *excerpt) looks(rule string) bool {
	_, set, ok := strings.Cut(rule, "--match-set ")
	set, _, _ = strings.Cut(set, " ")
	for name, entries := range e.Sets {
		if name.In(e.State.Family) == set {
			return len(entries) > 0
		}
	}
	return !ok
}

// servers adds virtual servers.
func (e *excerpt) servers() {
	keys := slices.SortedFunc(maps.Keys(e.Servers), compareKeys)
	more := max(0, len(keys)-e.most)
	for _, k := range keys[:len(keys)-more] {
		server := e.Servers[k]
		p := Part{Kind: VirtualServer, Name: k.String(), Comment: "scheduler " + server.Scheduler}
		if server.Flags&Persistent != 0 {
			p.Comment += fmt.Sprintf(", a client stays for %v", server.Timeout)
		}
		if k.Mark != 0 {
			p.Comment += ", for connections from inside"
		}
		for _, a := range slices.SortedFunc(maps.Keys(server.Real), netip.AddrPort.Compare) {
			p.Lines = append(p.Lines, fmt.Sprintf("%v weight %d", a, server.Real[a]))
		}
		e.add(p)
	}
	if more > 0 {
		e.parts = append(e.parts, Part{Kind: VirtualServer, Name: "of other addresses", More: more})
	}
}

// purposes of sets.
var purposes = map[SetName]string{
	Addrs:             "addresses that the node has for Services only",
	Services:          "addresses and ports of virtual servers",
	Refuse:            "no endpoint: new connections are refused",
	Discard:           "new connections from outside are dropped",
	Inside:            "marks for connections from pods and from the node",
	Restricted:        "source ranges are checked",
	Sources:           "clients that may connect",
	Masquerade:        "all clients are masqueraded",
	MasqueradeOutside: "clients that are no pods are masqueraded",
	Hairpin:           "endpoints on this node, to themselves",
}

// chainPurposes are the purposes of chains of the companion.
var chainPurposes = map[string]string{
	servicesChain:    "drop or mark before IPVS",
	outsideChain:     "mark connections that are not from a pod",
	insideChain:      "give the mark of a virtual server",
	filterChain:      "connections that no virtual server gets",
	rejectChain:      "refuse",
	postroutingChain: "after IPVS has sent a packet to a real server",
	masqueradeChain:  "replace the client's address by the node's",
}
