package ipvs

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// A phase is the place of an operation in a plan. Protection comes first. A way is opened when
// everything on it is there, and closed before anything on it goes.
type phase int

const (
	prepare         phase = iota // sysctls, sets, the device
	companionSet                 // the rules, over sets that are all there
	addrGoes                     // an address that no Service has any more
	allowEarly                   // sources that an allowed range had before
	protect                      // entries that say which Service a packet is for, and how it is translated
	forbidEarly                  // sources that may no longer connect, before new endpoints come
	verdictComes                 // connections are dropped or refused
	serverComes                  // virtual servers and real servers
	serviceComes                 // the filter lets connections through to them
	addrComes                    // the node accepts packets to the address
	realGoes                     // real servers of virtual servers that stay
	serviceGoes                  // the filter refuses connections to a virtual server
	serverGoes                   // before it goes: the node itself would answer
	verdictGoes                  // dropping and refusing end when endpoints are there
	allowLate                    // sources that may connect now, when endpoints that they may not reach are gone
	restrictionGoes              // sources no longer matter
	forbidLate                   // sources that another range has
	protectionGoes               // entries about endpoints and frontends that are gone
	companionGoes                // only if everything goes
	setsGo                       // sets and the device, which nothing uses any more
	phases
)

// comes and goes have the phases in which entries of a set are added and deleted. Sources have
// several: see diffSources.
var comes = map[SetName]phase{
	Addrs: protect, Hairpin: protect, Masquerade: protect, MasqueradeOutside: protect, MasqueradeNode: protect,
	Restricted: protect, Discard: verdictComes, DiscardOutside: verdictComes, Refuse: verdictComes, Services: serviceComes,
}

var goes = map[SetName]phase{
	Addrs: protectionGoes, Hairpin: protectionGoes, Masquerade: protectionGoes,
	MasqueradeOutside: protectionGoes, MasqueradeNode: protectionGoes, Restricted: restrictionGoes,
	Refuse: verdictGoes, Discard: verdictGoes, DiscardOutside: verdictGoes, Services: serviceGoes,
}

// differ collects the operations from one Content to another, or between parts of them.
type differ struct {
	family     model.Family
	have, want *Content
	ops        [phases][]Op
}

// Diff returns the plan from one State to another that was compiled after it. Its cost depends
// on the size of the difference. Either State may be nil, for nothing at all.
func Diff(before, after *State) Plan {
	switch {
	case before == nil && after == nil:
		return Plan{}
	case before == nil:
		return DiffContent(NewContent(after.Family), after)
	case after == nil:
		return Remove(before.Content(), before.Options)
	case !reflect.DeepEqual(before.Options, after.Options):
		return DiffContent(before.Content(), after)
	}
	d := &differ{family: after.Family, have: NewContent(after.Family), want: NewContent(after.Family)}
	d.changedKeys(before, after)
	d.changedAddrs(before, after)
	d.changedHairpins(before, after)
	d.have.Companion, d.want.Companion = before.Companion, after.Companion
	return d.plan()
}

func (d *differ) changedHairpins(before, after *State) {
	for c := range after.snapshot.HairpinChanges(before.snapshot) {
		if c.Old.IsValid() {
			d.have.add(Hairpin, hairpinEntry(c.Old))
		} else {
			d.want.add(Hairpin, hairpinEntry(c.New))
		}
	}
}

// changedKeys adds to both sides the addresses and ports that may differ.
func (d *differ) changedKeys(before, after *State) {
	seen := map[Key]bool{}
	visit := func(v model.VIP) {
		for _, k := range slices.Concat(before.keysOf(v), after.keysOf(v)) {
			if !seen[k] {
				seen[k] = true
				before.addKey(d.have, k)
				after.addKey(d.want, k)
			}
		}
	}
	for c := range after.frontends.Changes(model.VIPKeys, before.frontends) {
		visit(c.Key)
	}
	if slices.Equal(before.settings().NodePortAddrs, after.settings().NodePortAddrs) {
		return
	}
	for v := range after.frontends.All() {
		if v.Addr.IsUnspecified() {
			visit(v)
		}
	}
}

func (d *differ) changedAddrs(before, after *State) {
	seen := map[netip.Addr]bool{}
	visit := func(a netip.Addr) {
		if !seen[a] {
			seen[a] = true
			before.addAddr(d.have, a)
			after.addAddr(d.want, a)
		}
	}
	for c := range after.addrs.Changes(model.AddrKeys, before.addrs) {
		visit(c.Key)
	}
	if before.snapshot.Settings != after.snapshot.Settings {
		for _, a := range slices.Concat(before.settings().NodeAddrs, after.settings().NodeAddrs) {
			visit(a)
		}
	}
	if len(d.have.Addrs)+len(d.want.Addrs) > 0 {
		d.have.Device, d.want.Device = before.Options.Device, after.Options.Device
	}
}

// DiffContent returns the plan from a kernel's content to a State. Virtual servers that may
// belong to somebody else stay.
func DiffContent(have *Content, want *State) Plan {
	c := want.Content()
	d := &differ{family: want.Family, have: have.without(want.Options, c), want: c}
	d.prepare(want.Options.Sysctls(want.Family))
	return d.plan()
}

// Remove returns the plan that removes everything of ours.
func Remove(have *Content, o Options) Plan {
	nothing := NewContent(have.Family)
	d := &differ{family: have.Family, have: have.without(o, nothing), want: nothing}
	if have.Companion != nil {
		d.add(companionGoes, RemoveCompanion{have.Family})
	}
	for _, name := range SetNames {
		if have.Sets[name] != nil {
			d.add(setsGo, DestroySet{have.Family, name})
		}
	}
	if have.Device != "" {
		d.add(addrGoes, DeleteDevice{have.Device}) // with all addresses
	}
	d.have.Addrs, d.have.Sets = nil, nil
	return d.plan()
}

// without leaves out unwanted virtual servers that may belong to somebody else.
func (c *Content) without(o Options, want *Content) *Content {
	d := *c
	d.Servers = maps.Clone(c.Servers)
	maps.DeleteFunc(d.Servers, func(k Key, _ Server) bool {
		_, wanted := want.Servers[k]
		return !wanted && o.Foreign(k)
	})
	return &d
}

func (d *differ) add(p phase, op Op) { d.ops[p] = append(d.ops[p], op) }

// prepare adds the operations that everything else depends on.
func (d *differ) prepare(sysctls []Sysctl) {
	for _, s := range sysctls {
		if d.have.Sysctls[s.Name] != s.Value {
			d.add(prepare, SetSysctl{s})
		}
	}
	if d.want.Timeouts.Over(d.have.Timeouts) != d.have.Timeouts {
		d.add(prepare, SetTimeouts{d.want.Timeouts})
	}
	for _, name := range SetNames {
		if d.have.Sets[name] == nil {
			d.add(prepare, CreateSet{d.family, name})
		}
	}
	if d.have.Device != d.want.Device {
		if d.have.Device != "" {
			d.add(prepare, DeleteDevice{d.have.Device})
			d.have.Addrs = nil
		}
		d.add(prepare, CreateDevice{d.want.Device})
	}
}

func (d *differ) plan() Plan {
	d.diffAddrs()
	if want := d.want.Companion; want != nil && !want.equal(d.have.Companion) {
		first := want
		if d.have.Companion == nil {
			if first = want.beginning(); !first.equal(want) {
				d.add(addrComes, SetCompanion{want})
			}
		}
		d.add(companionSet, SetCompanion{first})
	}
	for _, name := range SetNames {
		if name == Sources {
			d.diffSources()
		} else {
			d.diffSet(name)
		}
	}
	d.diffServers()
	return Plan{Family: d.family, Ops: slices.Concat(d.ops[:]...)}
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
	for _, a := range missing(d.have.Addrs, d.want.Addrs, netip.Addr.Compare) {
		d.add(addrGoes, DeleteAddress{d.have.Device, a})
	}
	for _, a := range missing(d.want.Addrs, d.have.Addrs, netip.Addr.Compare) {
		d.add(addrComes, AddAddress{d.want.Device, a})
	}
}

func (d *differ) diffSet(name SetName) {
	have, want := d.have.Sets[name], d.want.Sets[name]
	for _, e := range missing(have, want, compareEntries) {
		d.add(goes[name], DeleteEntry{d.family, name, e})
	}
	for _, e := range missing(want, have, compareEntries) {
		d.add(comes[name], AddEntry{d.family, name, e})
	}
}

// diffSources opens and closes ranges. A client that is allowed before and after is allowed all
// the time, and a client that is no longer allowed never reaches a new endpoint.
func (d *differ) diffSources() {
	have, want := d.have.Sets[Sources], d.want.Sets[Sources]
	for _, e := range missing(want, have, compareEntries) {
		p := allowLate
		if !d.have.has(Restricted, e) || covers(have, e) {
			p = allowEarly
		}
		d.add(p, AddEntry{d.family, Sources, e})
	}
	for _, e := range missing(have, want, compareEntries) {
		p := forbidEarly
		if !d.want.has(Restricted, e) || covers(want, e) {
			p = forbidLate
		}
		d.add(p, DeleteEntry{d.family, Sources, e})
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
	for _, k := range missing(d.have.Servers, d.want.Servers, compareKeys) {
		d.add(serverGoes, DeleteServer{k})
	}
	for _, k := range slices.SortedFunc(maps.Keys(d.want.Servers), compareKeys) {
		d.diffServer(k)
	}
}

func (d *differ) diffServer(k Key) {
	have, ok := d.have.Servers[k]
	want := d.want.Servers[k]
	switch {
	case !ok:
		d.add(serverComes, AddServer{k, want.config()})
	case !have.sameAs(want):
		d.add(serverComes, UpdateServer{k, want.config()})
	}
	var addrs []netip.AddrPort
	for a, w := range want.Real {
		if old, ok := have.Real[a]; !ok || old != w {
			addrs = append(addrs, a)
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	for _, a := range addrs {
		d.add(serverComes, AddReal{k, a, want.Real[a]})
	}
	for _, a := range missing(have.Real, want.Real, netip.AddrPort.Compare) {
		// A real server that drains already gets the operation again: after a start, the process
		// has no list of those.
		if want.drains() {
			d.add(realGoes, DrainReal{k, a})
		} else {
			d.add(realGoes, DeleteReal{k, a})
		}
	}
}

// config returns a server without its real servers.
func (s Server) config() Server {
	s.Real = nil
	return s
}
