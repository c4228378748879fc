package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A phase is the place of an operation in a plan. What keeps connections away, or masquerades them, comes before the
// endpoints that need it, and goes after the endpoints that needed it: the outermost comes first and goes last.
type phase int

const (
	prepare    phase = iota // sysctls, sets, rules, and the addresses that no Service has any more
	restrict                // entries that drop, and sources that may no longer connect
	treat                   // entries that refuse or masquerade
	serve                   // virtual servers, and real servers that come
	open                    // what the filter lets through to virtual servers, and addresses that come
	leave                   // real servers and virtual servers that go
	untreat                 // entries that refused or masqueraded
	unrestrict              // entries that dropped, and sources that may connect now
	tidy                    // sources without a restriction
	phases
)

// phasesOf returns the phases in which entries of a set come and go. Sources have others: see diffSources.
func phasesOf(name SetName) (comes, goes phase) {
	switch name {
	case Services:
		return open, open
	case Discard, DiscardOutside, Restricted:
		return restrict, unrestrict
	default:
		return treat, untreat
	}
}

// differ collects the operations from one Content to another, or between parts of them.
type differ struct {
	have, want *Content
	ops        [phases][]Op
}

// Diff returns the plan from one State to another that was compiled after it, with the same options. Its cost
// depends on the size of the difference.
func Diff(before, after *State) Plan {
	d := &differ{have: NewContent(after.Family), want: NewContent(after.Family)}
	visit := func(k Key) {
		before.addKey(d.have, k)
		after.addKey(d.want, k)
	}
	for c := range after.frontends.Changes(model.VIPKeys, before.frontends) {
		visit(c.Key)
	}
	for c := range after.nodePorts.Changes(model.VIPKeys, before.nodePorts) {
		visit(c.Key)
	}
	for c := range after.addrs.Changes(model.AddrKeys, before.addrs) {
		if !c.InOld {
			d.want.addAddr(c.Key)
		} else if !c.InNew {
			d.have.addAddr(c.Key)
		}
	}
	for c := range after.snapshot.Hairpins.Changes(model.AddrKeys, before.snapshot.Hairpins) {
		if c.InOld {
			d.have.add(Hairpin, hairpinEntry(c.Key))
		} else {
			d.want.add(Hairpin, hairpinEntry(c.Key))
		}
	}
	d.have.Device, d.want.Device = true, true
	d.have.Rules, d.want.Rules = before.Rules, after.Rules
	return d.plan()
}

// DiffContent returns the plan from a kernel's content to a State. Virtual servers that may
// belong to somebody else stay.
func DiffContent(have *Content, want *State) Plan {
	d := &differ{have: new(*have), want: want.Content()}
	d.have.Servers = maps.Clone(have.Servers)
	maps.DeleteFunc(d.have.Servers, func(k Key, _ Server) bool {
		_, wanted := d.want.Servers[k]
		return !wanted && want.Options.Foreign(k)
	})
	d.prepare(want.Options.Sysctls(want.Family))
	return d.plan()
}

func (d *differ) add(p phase, command string, do func(Kernel) error) {
	d.ops[p] = append(d.ops[p], Op{Command: command, Do: do})
}

// need adds an operation without which the rest of the plan would not be safe.
func (d *differ) need(p phase, command string, do func(Kernel) error) {
	d.ops[p] = append(d.ops[p], Op{Needed: true, Command: command, Do: do})
}

// server adds an operation on a virtual server.
func (d *differ) server(p phase, k Key, command string, do func(Kernel) error) {
	d.ops[p] = append(d.ops[p], Op{Key: k, Command: "ipvsadm " + command, Do: do})
}

// prepare adds the operations that everything else depends on.
func (d *differ) prepare(sysctls []Sysctl) {
	for _, s := range sysctls {
		if d.have.Sysctls[s.Name] != s.Value {
			d.add(prepare, "sysctl -w "+s.Name+"="+s.Value, func(n Kernel) error { return n.SetSysctl(s) })
		}
	}
	if t := d.want.Timeouts; t.Over(d.have.Timeouts) != d.have.Timeouts {
		command := fmt.Sprintf("ipvsadm --set %.0f %.0f %.0f", t.TCP.Seconds(), t.TCPFin.Seconds(), t.UDP.Seconds())
		d.add(prepare, command, func(n Kernel) error { return n.SetTimeouts(t) })
	}
	for _, name := range SetNames {
		if d.have.Sets[name] == nil {
			command := "ipset create " + name.Declaration(d.want.Family)
			d.need(prepare, command, func(n Kernel) error { return n.CreateSet(name) })
		}
	}
	if !d.have.Device {
		d.need(prepare, "ip link add "+Device+" arp off type dummy", Kernel.CreateDevice)
	}
}

// plan orders the operations. Within a phase, they are in the order in which they are added here.
func (d *differ) plan() Plan {
	rules, restore := d.want.Rules, restoreCommand(d.want.Family)+" --noflush"
	changes := !rules.equal(d.have.Rules)
	if changes {
		first := rules
		if d.have.Rules == nil {
			first = rules.beginning()
		}
		d.need(prepare, restore, func(n Kernel) error { return n.SetRules(first) })
		changes = !first.equal(rules)
	}
	d.diffSources()
	for _, name := range SetNames {
		if name != Sources {
			d.diffSet(name)
		}
	}
	d.diffAddrs()
	if changes {
		d.need(open, restore, func(n Kernel) error { return n.SetRules(rules) })
	}
	d.diffServers()
	return slices.Concat(d.ops[:]...)
}

// missing returns the keys of a that b does not have, sorted.
func missing[K comparable, V any](a, b map[K]V, compare func(K, K) int) []K {
	var list []K
	for k := range a {
		if _, ok := b[k]; !ok {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, compare)
	return list
}

func (d *differ) diffAddrs() {
	command := func(verb string, a netip.Addr) string {
		return fmt.Sprintf("ip address %s %v/%d dev %s", verb, a, a.BitLen(), Device)
	}
	for _, a := range missing(d.have.Addrs, d.want.Addrs, netip.Addr.Compare) {
		d.add(prepare, command("delete", a), func(n Kernel) error { return n.DeleteAddress(a) })
	}
	for _, a := range missing(d.want.Addrs, d.have.Addrs, netip.Addr.Compare) {
		d.add(open, command("add", a), func(n Kernel) error { return n.AddAddress(a) })
	}
}

func (d *differ) diffSet(name SetName) {
	comes, goes := phasesOf(name)
	have, want := d.have.Sets[name], d.want.Sets[name]
	for _, e := range missing(have, want, compareEntries) {
		d.deleteEntry(goes, name, e)
	}
	for _, e := range missing(want, have, compareEntries) {
		d.addEntry(comes, name, e)
	}
}

func (d *differ) addEntry(p phase, name SetName, e Entry) {
	d.need(p, "ipset add "+entryText(name, e), func(n Kernel) error { return n.AddEntry(name, e) })
}

func (d *differ) deleteEntry(p phase, name SetName, e Entry) {
	d.need(p, "ipset del "+entryText(name, e), func(n Kernel) error { return n.DeleteEntry(name, e) })
}

// diffSources opens and closes ranges. A client that is allowed before and after is allowed all
// the time, and a client that is no longer allowed never reaches a new endpoint.
func (d *differ) diffSources() {
	have, want := d.have.Sets[Sources], d.want.Sets[Sources]
	for _, e := range missing(want, have, compareEntries) {
		p := unrestrict
		if !d.have.has(Restricted, e) || covers(have, e) {
			p = restrict
		}
		d.addEntry(p, Sources, e)
	}
	for _, e := range missing(have, want, compareEntries) {
		p := restrict
		if !d.want.has(Restricted, e) || covers(want, e) {
			p = tidy
		}
		d.deleteEntry(p, Sources, e)
	}
}

// has reports whether a set has the address and port of an entry.
func (c *Content) has(set SetName, e Entry) bool {
	e.Net = netip.Prefix{}
	return c.Sets[set][e]
}

// covers reports whether a range as wide as an entry's, or wider, is among the sources.
func covers(sources map[Entry]bool, e Entry) bool {
	for bits := e.Net.Bits(); bits > 0; bits-- {
		e.Net = netip.PrefixFrom(e.Net.Addr(), bits).Masked()
		if sources[e] {
			return true
		}
	}
	return false
}

func (d *differ) diffServers() {
	for _, k := range missing(d.have.Servers, d.want.Servers, model.VIPKeys.Compare) {
		d.server(leave, k, "-D "+keyText(k), func(n Kernel) error { return n.DeleteServer(k) })
	}
	for _, k := range slices.SortedFunc(maps.Keys(d.want.Servers), model.VIPKeys.Compare) {
		d.diffServer(k)
	}
}

func (d *differ) diffServer(k Key) {
	have, ok := d.have.Servers[k]
	want := d.want.Servers[k]
	switch {
	case !ok:
		d.server(serve, k, "-A "+serverText(k, want), func(n Kernel) error { return n.AddServer(k, want) })
	case !have.sameAs(want):
		d.server(serve, k, "-E "+serverText(k, want), func(n Kernel) error { return n.UpdateServer(k, want) })
	}
	var addrs []netip.AddrPort
	for a, w := range want.Real {
		if old, ok := have.Real[a]; !ok || old != w {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	for _, a := range addrs {
		weight := want.Real[a]
		d.server(serve, k, "-a "+realText(k, a, weight), func(n Kernel) error { return n.SetReal(k, a, weight) })
	}
	for _, a := range missing(have.Real, want.Real, netip.AddrPort.Compare) {
		switch {
		case !drains(k, want):
			d.server(leave, k, fmt.Sprintf("-d %s -r %v", keyText(k), a), func(n Kernel) error { return n.DeleteReal(k, a) })
		case have.Real[a] != 0: // otherwise, it drains already
			command := "-e " + realText(k, a, 0) + ", and when idle -d"
			d.server(leave, k, command, func(n Kernel) error { return n.SetReal(k, a, 0) })
		}
	}
}
