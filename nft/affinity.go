package nft

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Session affinity needs objects of the service port's own:
//
//	map   affinity-NAME        client : endpoint, each for some time
//	set   own-endpoints-NAME   the endpoints that a client may have in there
//	chain affinity-NAME        a client that is in there gets its endpoint again
//	chain remember-NAME        a client's endpoint is put in there, if it is one of these
//
// These are for the Cluster endpoints. A Service with a Local traffic policy also has Local
// endpoints, with a map, a set and a chain affinity-… for them, called local-…. An endpoint of
// one list may not be in the other, so each list has its own map. An endpoint in both lists is
// stored in both maps.
//
// The packet that is remembered may have been sent to its destination by another program, or
// by the rules of a moment ago: the set tells whether that is an endpoint of the service port.
//
// A client may come back before its deletion from the map, see Purge. A set of all Services has the
// endpoints that were taken from one of them moments ago: to those, no new connection leaves. The
// client sends the packet again, and gets another endpoint. A client of UDP may not send it again: the
// set has an endpoint of UDP only until its clients are deleted, see Forgotten.
//
// Only these sets depend on the endpoints. So a changed endpoint and a new connection cost the
// same with affinity as without, for any number of endpoints. NAME is
// namespace/service/protocol/port. No name of a namespace makes a name look like one of another
// kind, because none of these words begins with another one.
var (
	affinityOf     = [...]string{model.Cluster: "affinity-", model.Local: "local-affinity-"}
	ownEndpointsOf = [...]string{model.Cluster: "own-endpoints-", model.Local: "local-own-endpoints-"}
)

const (
	externalAffinity = "external-affinity-"
	rememberOwn      = "remember-"

	// goneFor is how long connections to an endpoint that was taken away are watched: longer than it
	// takes until its clients are deleted, those that packets noted meanwhile, too.
	goneFor = 10 * time.Second
)

// AffinityMap is the name of the map that has the clients of a service port with session affinity, for one of
// its lists of endpoints.
func AffinityMap(port model.ServicePortName, list model.TrafficPolicy) string {
	return affinityOf[list] + ownName(port)
}

// OwnEndpoints is the name of the set that has the endpoints that a client in such a map may have.
func OwnEndpoints(port model.ServicePortName, list model.TrafficPolicy) string {
	return ownEndpointsOf[list] + ownName(port)
}

// Endpoint returns the endpoint in an element of such a map.
func Endpoint(data string) (netip.AddrPort, bool) {
	if len(data) <= registerSize {
		return netip.AddrPort{}, false
	}
	at := len(data) - registerSize
	addr, ok := netip.AddrFromSlice([]byte(data[:at]))
	return netip.AddrPortFrom(addr, uint16(data[at])<<8|uint16(data[at+1])), ok
}

// affinity is what a service port needs for session affinity.
type affinity struct {
	sp   *model.ServicePort
	name string
	// has says to which lists the policies can send a connection, even if a list is empty just
	// now: otherwise all clients would be forgotten while it is.
	has      [len(model.TrafficPolicies)]bool
	external bool // some frontend needs both
}

// affinityFor returns nil for service ports without affinity.
func affinityFor(sp *model.ServicePort) *affinity {
	if sp == nil || sp.Affinity == 0 || len(sp.Frontends) == 0 {
		return nil
	}
	a := &affinity{sp: sp, name: ownName(sp.Name)}
	for _, fe := range sp.Frontends {
		a.has[fe.TrafficPolicy] = true
		if isExternalLocal(fe) {
			a.has[model.Cluster], a.external = true, true
		}
	}
	return a
}

// isExternalLocal reports whether the list depends on the client, see ShortCircuit, even if
// there is no endpoint just now.
func isExternalLocal(fe model.Frontend) bool {
	return fe.Kind != model.ClusterIP && fe.TrafficPolicy == model.Local
}

// sets returns its sets and maps.
func (a *affinity) sets() []Set {
	if a == nil {
		return nil
	}
	var list []Set
	for _, l := range model.TrafficPolicies {
		if a.has[l] {
			list = append(list, DeclarationOf(affinityOf[l]+a.name), DeclarationOf(ownEndpointsOf[l]+a.name))
		}
	}
	return list
}

// chains returns its chains.
func (a *affinity) chains(s *model.Settings) []Chain {
	if a == nil {
		return nil
	}
	proto := MatchProtocol{a.sp.Name.Protocol}
	whose := a.sp.Name.String()
	var chains []Chain
	remember := Chain{Name: rememberOwn + a.name, Comment: "a client of " + whose + " got an endpoint"}
	gone := Rule{proto, InSet{Key: vipKey, Set: GoneEndpoints}}
	for _, l := range model.TrafficPolicies {
		if !a.has[l] {
			continue
		}
		chains = append(chains, Chain{
			Name:    affinityOf[l] + a.name,
			Rules:   []Rule{{proto, DNAT{sourceKey, affinityOf[l] + a.name}}},
			Comment: "a client of " + whose + " comes back",
		})
		own := InSet{Key: endpointKey, Set: ownEndpointsOf[l] + a.name}
		remember.Rules = append(remember.Rules, Rule{proto, own, Remember{affinityOf[l] + a.name, a.sp.Affinity}})
		own.Not = true
		gone = append(gone, own)
	}
	remember.Rules = append(remember.Rules, append(gone, Verdict{Kind: DropPacket}))
	if a.external {
		chains = append(chains, Chain{
			Name: externalAffinity + a.name,
			Rules: append(fromInside(s, Verdict{Goto, affinityOf[model.Cluster] + a.name}),
				Rule{Verdict{Goto, affinityOf[model.Local] + a.name}}),
			Comment: "a client of " + whose + " comes back",
		})
	}
	return append(chains, remember)
}

// verdict returns the verdict for connections to a frontend: to the chain for clients that
// come back.
func (a *affinity) verdict(fe model.Frontend) Verdict {
	if isExternalLocal(fe) {
		return Verdict{Jump, externalAffinity + a.name}
	}
	return Verdict{Jump, affinityOf[fe.TrafficPolicy] + a.name}
}

// noMemory adds the elements for addresses of the node that are frontends without affinity. The
// port may have the number of another Service's node port, whose clients do not come this way.
func (r *Ruleset) noMemory(sp *model.ServicePort, add func(set string, e Element)) {
	if sp.Affinity > 0 || r.snapshot.Settings == nil {
		return
	}
	for _, fe := range sp.Frontends {
		if fe.Kind == model.ClusterIP || fe.Kind == model.NodePort {
			continue
		}
		if _, onNode := slices.BinarySearchFunc(r.snapshot.NodePortAddrs, fe.VIP.Addr, netip.Addr.Compare); onNode {
			add(RememberIPs, Element{Key: scopeAddr.key(fe.VIP), Verdict: Verdict{Kind: Return}})
		}
	}
}

// elements adds its endpoints.
func (a *affinity) elements(add func(set string, e Element)) {
	if a == nil {
		return
	}
	for _, l := range model.TrafficPolicies {
		if !a.has[l] {
			continue
		}
		for e := range a.sp.In(l) {
			add(ownEndpointsOf[l]+a.name, Element{Key: endpointData(e)})
		}
	}
}

func endpointData(e model.Endpoint) string {
	return string(AppendPort(AppendAddr(nil, e.Addr.Addr()), e.Addr.Port()))
}

// watchGone adds the endpoints that a batch takes from service ports with affinity to those of all.
func (b *Batch) watchGone() {
	var ops []ElementOp
	b.Add = slices.DeleteFunc(b.Add, func(s SetOps) bool { return s.Set == GoneEndpoints })
	seen := map[string]bool{} // several service ports may lose the same one
	for _, s := range b.Delete {
		if !strings.HasPrefix(s.Set, ownEndpointsOf[model.Cluster]) && !strings.HasPrefix(s.Set, ownEndpointsOf[model.Local]) {
			continue
		}
		proto := ownProtocol(s.Set)
		if b.forgotten && proto == model.UDP {
			continue
		}
		for _, op := range s.Ops {
			addr, port := op.Key[:len(op.Key)-registerSize], op.Key[len(op.Key)-registerSize:]
			key := string(AppendProto([]byte(addr), proto)) + port
			if !seen[key] {
				seen[key] = true
				ops = append(ops, ElementOp{Element{Key: key}, op.Port})
			}
		}
	}
	if len(ops) > 0 {
		b.Add = append(b.Add, SetOps{GoneEndpoints, ops})
	}
}

// Purge updates the remembered clients of a service port after a batch. Clients whose endpoint
// is gone are forgotten, and a changed timeout begins with a client's last connection.
type Purge struct {
	Map     string
	Keep    map[string]bool // endpoints, as an element's data
	Timeout *Remember       // nil: unchanged
	Late    bool            // the batch forgets clients whose endpoint was gone before

	port  *model.ServicePort // after the batch
	list  model.TrafficPolicy
	found bool // a comparison found the map: its clients may have any endpoints
}

// ServicePort returns whose clients the map has.
func (p Purge) ServicePort() model.ServicePortName { return p.port.Name }

// newPurge returns the purge of a map that the service port has.
func newPurge(a *affinity, l model.TrafficPolicy) Purge {
	p := Purge{Map: affinityOf[l] + a.name, Keep: map[string]bool{}, port: a.sp, list: l}
	for e := range a.sp.In(l) {
		p.Keep[endpointData(e)] = true
	}
	return p
}

// Renewed returns the purge as a later ruleset has it: an endpoint that is gone may be back. It
// returns false if the ruleset does not have the map.
func (r *Ruleset) Renewed(p Purge) (Purge, bool) {
	now, ok := r.snapshot.ServicePort(p.port.Name)
	if ok && now == p.port {
		return p, true
	}
	a := affinityFor(now)
	if !ok || a == nil || !a.has[p.list] {
		return Purge{}, false
	}
	renewed := newPurge(a, p.list)
	if p.Timeout != nil {
		renewed.Timeout = &Remember{p.Map, now.Affinity}
	}
	return renewed, true
}

// text says which clients stay: "{ keep 10.0.0.1 . 80, 10.0.0.2 . 80; timeout 3h }".
func (p Purge) text(f model.Family) string {
	kept := make([]string, 0, len(p.Keep))
	for _, endpoint := range slices.Sorted(maps.Keys(p.Keep)) {
		kept = append(kept, string(appendTexts(nil, f, clients.Data, endpoint)))
	}
	text := "{ keep " + cmp.Or(strings.Join(kept, ", "), "none")
	if p.Timeout != nil {
		text += "; timeout " + durationText(p.Timeout.Timeout)
	}
	return text + " }"
}

// purge returns the maps of a service port to purge; old is the version before. With all, the
// version before is unknown, and every map is purged.
func purge(old, now *model.ServicePort, all bool) []Purge {
	a, before := affinityFor(now), affinityFor(old)
	if a == nil || before == nil && !all {
		return nil
	}
	var list []Purge
	for _, l := range model.TrafficPolicies {
		if !a.has[l] || !all && !before.has[l] {
			continue
		}
		p := newPurge(a, l)
		gone := all
		if old != nil {
			for e := range old.In(l) {
				gone = gone || !p.Keep[endpointData(e)]
			}
		}
		p.found = all
		if all || old.Affinity != now.Affinity {
			p.Timeout = &Remember{p.Map, now.Affinity}
		}
		if gone || p.Timeout != nil {
			list = append(list, p)
		}
	}
	return list
}

// Ending returns the purges of a batch that takes an endpoint from a list of a service port; and those of other maps
// that a comparison found, where a process that ended too soon may have left clients of an endpoint that was gone before.
func (b *Batch) Ending() (taken, found []Purge) {
	shrinks := map[string]bool{}
	for _, s := range b.Delete {
		shrinks[s.Set] = shrinks[s.Set] || len(s.Ops) > 0
	}
	for _, p := range b.Purge {
		switch {
		case shrinks[OwnEndpoints(p.port.Name, p.list)]:
			taken = append(taken, p)
		case p.found:
			found = append(found, p)
		}
	}
	return taken, found
}

// Forget makes the batch delete clients from the map of a purge: with their endpoint or, if that was gone before, ahead
// of all else.
func (b *Batch) Forget(p Purge, clients []Element) {
	var before, now []ElementOp
	taken := deleted(b.Delete, OwnEndpoints(p.port.Name, p.list))
	for _, e := range clients {
		if taken[e.Data] {
			now = append(now, ElementOp{e, p.port})
		} else {
			before = append(before, ElementOp{e, p.port})
		}
	}
	if len(now) > 0 {
		b.Delete = append(b.Delete, SetOps{p.Map, now})
	}
	if len(before) > 0 {
		b.DeleteFirst = append(b.DeleteFirst, SetOps{p.Map, before})
		for i := range b.Purge {
			b.Purge[i].Late = b.Purge[i].Late || b.Purge[i].Map == p.Map
		}
	}
}

// Forgotten tells the batch that Forget had all clients of the endpoints that it takes away. Then it
// leaves connections over UDP alone: a packet of UDP that was sent to such an endpoint by the rules of
// before, and is on its way now, would be lost for good. Few clients can still come back, those that
// packets noted since the map was read: their flows end when they are forgotten (kernel.Options.ForgottenLate).
func (b *Batch) Forgotten() {
	b.forgotten = true
	b.watchGone()
}

// KeepClients takes from the batch what Forget put there. It reports whether there was anything.
func (b *Batch) KeepClients() bool {
	n := len(b.Delete)
	b.Delete = slices.DeleteFunc(b.Delete, func(s SetOps) bool { return DeclarationOf(s.Set).Dynamic })
	b.forgotten = false
	b.watchGone()
	return len(b.Delete) < n
}
