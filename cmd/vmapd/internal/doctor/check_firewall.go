package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Priorities of hooks: connection tracking, and the translation of destinations by Services. IPVS takes packets at the
// end of the hook input.
const (
	lowest, highest     = -1 << 31, 1<<31 - 1
	tracking            = -200
	translation         = -101
	iptablesTranslation = -100
	ipvsInput           = 97
)

// translation returns the priority at which the backend translates.
func (f Facts) translation() int {
	if b := f.Wants.Backend; b == "iptables" || b == "ipvs" {
		return iptablesTranslation
	}
	return translation
}

// Node ports by default; without a daemon, connections to one of them are followed.
const anyNodePort = 31789

// stage is a part of a packet's way: chains of one hook.
type stage struct {
	hook        firewall.Hook
	least, most int
	packet      firewall.Packet
}

// path is the way of a connection's packets.
type path struct {
	name    string // "node port 30080/tcp of default/web"
	outside bool   // from a client outside the cluster: somebody may have meant to drop it
	stages  []stage
}

// checkFirewall follows connections to Services through the rules of others.
//
// A rule that certainly drops connections of pods is a failure. One that drops those of clients from
// outside is a failure where it drops any connection, such as a policy, and a warning where it is about
// the port: a firewall that is in the way of a node port may be meant. A rule that drops some clients
// only, or that is part of a network policy, is neither, unless it is about the port.
func checkFirewall(f Facts) []Line {
	found := map[firewall.Place]*drop{}
	paths := f.paths()
	for _, p := range paths {
		f.follow(p, found)
	}
	var lines []Line
	for _, place := range slices.SortedFunc(keys(found), func(a, b firewall.Place) int { return cmp.Compare(a.String(), b.String()) }) {
		lines = append(lines, found[place].line(place))
	}
	lines = append(lines, f.untracked()...)
	for _, text := range f.Host.Unread {
		lines = append(lines, Line{Level: Warn, Evidence: text, Remedy: "what they drop can't be told; look at them with nft list ruleset or iptables-save"})
	}
	switch {
	case len(lines) > 0:
		return lines
	case !f.Host.NetAdmin:
		return nil // nothing could be read
	}
	if len(paths) == 0 {
		return good("no connection was followed: neither a Service nor a default route is known")
	}
	rules := 0
	for _, r := range f.Host.Firewall {
		for _, c := range r.Chains {
			rules += len(c.Rules)
		}
	}
	return good(fmt.Sprintf("%d rules of others were read, and none is in the way of %d ways to Services", rules, len(paths)))
}

func keys(m map[firewall.Place]*drop) func(yield func(firewall.Place) bool) {
	return func(yield func(firewall.Place) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// drop is a place that drops connections.
type drop struct {
	level   Level
	certain bool
	hook    firewall.Hook
	paths   []string
}

func (d *drop) line(place firewall.Place) Line {
	verb := "drops"
	if !d.certain {
		verb = "drops some of the"
	}
	text := fmt.Sprintf("%v, which is not vmapd's, %s connections to %s", place, verb, d.paths[0])
	switch more := len(d.paths) - 1; more {
	case 0:
	case 1:
		text += ", and one other way to Services"
	default:
		text += fmt.Sprintf(", and %d other ways to Services", more)
	}
	remedy := "delete that rule, or accept these connections before it"
	switch {
	case place.Rule == 0 && d.hook == firewall.Forward:
		remedy = "accept forwarded packets from and to the ranges of pods in that chain, or let its policy accept them"
	case d.level == Warn:
		remedy = "nothing, if these connections are not wanted; otherwise " + remedy
	}
	return Line{Level: d.level, Evidence: text, Remedy: remedy}
}

// follow takes the packets of a path through the rules, and adds the place that drops one.
func (f Facts) follow(p path, found map[firewall.Place]*drop) {
	for _, s := range p.stages {
		out := firewall.Walk(f.Host.Firewall, s.hook, s.least, s.most, &s.packet, ours)
		for _, d := range out.Drops {
			level, ok := judge(p, d, out.Dropped())
			if !ok {
				continue
			}
			it := found[d.Place]
			if it == nil {
				it = &drop{level: level, hook: s.hook, certain: out.Dropped()}
				found[d.Place] = it
			}
			it.level = worse(it.level, level)
			it.certain = it.certain || out.Dropped()
			if !slices.Contains(it.paths, p.name) {
				it.paths = append(it.paths, p.name)
			}
		}
		if out.Dropped() {
			return
		}
	}
}

// judge returns the level of a drop, or false if it is nothing to tell.
func judge(p path, d firewall.Possible, dropped bool) (Level, bool) {
	switch {
	case strings.HasPrefix(d.Chain, "VMAPD-"), firewall.Engine(d.Table, d.Chain) != "":
		return OK, false
	case dropped && p.outside && d.Aimed:
		return Warn, true
	case dropped:
		return Fail, true
	case p.outside && d.Aimed:
		return Warn, true
	}
	return OK, false
}

// ours reports whether a chain is one of the backend nftables.
func ours(r *firewall.Ruleset, _ *firewall.Chain) bool { return r.Table == nft.TableName }

var protocols = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

// paths returns the connections to follow: to node ports from outside, and from pods to cluster IPs.
func (f Facts) paths() (paths []path) {
	marks := firewall.SetsMarks(f.Host.Firewall, func(chain string) bool { return strings.HasPrefix(chain, "VMAPD-") })
	for _, t := range f.nodePorts() {
		p := firewall.Packet{
			IPv6: t.Addr.Addr().Is6(), Proto: protocols[t.Protocol], Dst: t.Addr.Addr(), DstPort: t.Addr.Port(), In: f.interfaceOf(t.Addr.Addr()),
			Local: firewall.Yes, MarkKnown: !marks && f.Wants.Backend == string(nftables),
		}
		name := fmt.Sprintf("node port %d/%s", t.Addr.Port(), t.Protocol)
		if t.Service != "" {
			name += " of " + t.Service
		}
		paths = append(paths, path{name: name + " from outside", outside: true, stages: f.stages(p, t)})
	}
	for _, t := range f.Wants.ClusterIPs {
		p := firewall.Packet{IPv6: t.Addr.Addr().Is6(), Proto: protocols[t.Protocol], Dst: t.Addr.Addr(), DstPort: t.Addr.Port(), MarkKnown: !marks}
		name := fmt.Sprintf("cluster IP %v/%s of %s from pods", t.Addr, t.Protocol, t.Service)
		if i := slices.IndexFunc(f.Wants.LocalPods, func(a netip.Addr) bool { return a.Is6() == p.IPv6 }); i >= 0 {
			p.Src = f.Wants.LocalPods[i]
			p.In = f.Host.Routes[p.Src]
		}
		paths = append(paths, path{name: name, stages: f.stages(p, t)})
	}
	return paths
}

const nftables = "nftables"

// nodePorts are those of Services or, without a daemon, one that any Service may have.
func (f Facts) nodePorts() []Target {
	if f.Daemon != nil {
		return f.Wants.NodePorts
	}
	var list []Target
	for _, family := range model.Families {
		for _, i := range f.Host.Interfaces {
			at := slices.IndexFunc(i.Addrs, func(a netip.Addr) bool { return model.FamilyOf(a) == family && a.IsGlobalUnicast() })
			if i.Name == f.Host.DefaultRoutes[family] && at >= 0 {
				list = append(list, Target{Protocol: "tcp", Addr: netip.AddrPortFrom(i.Addrs[at], anyNodePort)})
			}
		}
	}
	return list
}

// interfaceOf returns the interface by which connections to an address of the node come in.
func (f Facts) interfaceOf(a netip.Addr) string {
	for _, i := range f.Host.Interfaces {
		if slices.Contains(i.Addrs, a) {
			return i.Name
		}
	}
	return f.Host.DefaultRoutes[model.FamilyOf(a)]
}

// stages returns the way of a connection's first packet, and of its answer.
func (f Facts) stages(p firewall.Packet, t Target) (list []stage) {
	add := func(hook firewall.Hook, least, most int, p firewall.Packet) {
		list = append(list, stage{hook, least, most, p})
	}
	before := p
	before.Out = firewall.NoInterface
	add(firewall.Ingress, lowest, highest, before)
	add(firewall.Prerouting, lowest, tracking-1, before)
	before.State, before.Orig = firewall.StateNew, t.Addr
	add(firewall.Prerouting, tracking, f.translation()-1, before)
	if f.Wants.Backend == "ipvs" {
		add(firewall.Input, lowest, ipvsInput, before)
		return list
	}
	after := before
	after.Translated, after.Dst, after.DstPort = true, t.Endpoint.Addr(), t.Endpoint.Port()
	out, known := f.Host.Routes[t.Endpoint.Addr()]
	after.Local = firewall.Maybe
	if known {
		after.Local = firewall.No
	}
	if known && out == "" {
		after.Local = firewall.Yes
		add(firewall.Prerouting, f.translation()+1, highest, after)
		add(firewall.Input, lowest, highest, after)
		return list
	}
	add(firewall.Prerouting, f.translation()+1, highest, after)
	after.Out = out
	add(firewall.Forward, lowest, highest, after)
	answer := firewall.Packet{
		IPv6: p.IPv6, Src: t.Endpoint.Addr(), Proto: p.Proto, In: out, Out: p.In, State: firewall.StateEstablished, Translated: true, Orig: t.Addr,
		MarkKnown: p.MarkKnown,
	}
	add(firewall.Forward, lowest, highest, answer)
	return list
}
