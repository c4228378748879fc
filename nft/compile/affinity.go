package compile

import (
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Session affinity needs objects of the service port's own:
//
//	map   affinity-NAME        client : endpoint, each for some time
//	chain affinity-NAME        a client that is in there gets its endpoint again
//	chain remember-NAME        a client's endpoint is put in there, if it is one of these
//
// These are for the Cluster endpoints. A Service with a Local traffic policy also has them for its Local endpoints,
// called local-…; an endpoint in both lists is stored in both maps. Another program may have sent the packet to its
// destination, or the rules of a moment ago: the set affinity-endpoints of all Services says whether that is an
// endpoint, by two numbers that stand for the map. The kernel walks all sets of a table for each set that it finds by
// its name, so a set for each service port would make a start four times as long.
//
// A client may come back before its deletion from the map, see Purge. A set of all Services has the endpoints that were
// taken from one of them: a packet that was sent to one of those deletes its client, and is dropped. When the client
// sends it again, it gets another endpoint.
//
// Only the elements of these two sets depend on the endpoints, so that a changed endpoint and a new connection cost the
// same with affinity as without. NAME is namespace/service/protocol/port; none of the words before it begins with
// another one.
const (
	externalAffinity = "external-affinity-"
	rememberOwn      = "remember-"
)

// affinity is what a service port needs for session affinity; without, it has no lists.
type affinity struct {
	sp   *model.ServicePort
	name string
	// lists are those to which the policies can send a connection, even if a list is empty just
	// now: otherwise all clients would be forgotten while it is.
	lists    []model.TrafficPolicy
	external bool // some frontend needs both
}

func affinityFor(sp *model.ServicePort) (a affinity) {
	if sp == nil || sp.Affinity == 0 {
		return a
	}
	a = affinity{sp: sp, name: nft.OwnName(sp.Name), external: slices.ContainsFunc(sp.Frontends, isExternalLocal)}
	for _, l := range model.TrafficPolicies {
		leads := func(fe model.Frontend) bool { return fe.TrafficPolicy == l }
		if a.external || slices.ContainsFunc(sp.Frontends, leads) {
			a.lists = append(a.lists, l)
		}
	}
	return a
}

// isExternalLocal reports whether the list depends on the client, see ShortCircuit, even if
// there is no endpoint just now.
func isExternalLocal(fe model.Frontend) bool {
	return fe.Kind != model.ClusterIP && fe.TrafficPolicy == model.Local
}

func (a affinity) sets() (list []nft.Set) {
	for _, l := range a.lists {
		list = append(list, nft.DeclarationOf(nft.AffinityMap(a.sp.Name, l)))
	}
	return list
}

// affinityChains returns the chains of a service port with affinity.
func (o Options) affinityChains(a affinity, s *model.Settings) []nft.Chain {
	if a.lists == nil {
		return nil
	}
	proto := protocolIs(a.sp.Name.Protocol)
	port := a.sp.Name.String()
	var chains []nft.Chain
	remember := nft.Chain{Name: rememberOwn + a.name, Comment: "a client of " + port + " got an endpoint"}
	gone := nft.Rule{proto, inSet(endpointKey, nft.GoneEndpoints)}
	var forget nft.Rule
	for _, l := range a.lists {
		clients := nft.AffinityMap(a.sp.Name, l)
		chains = append(chains, nft.Chain{
			Name:    clients,
			Rules:   o.comesBack(a.sp, clients),
			Comment: "a client of " + port + " comes back",
		})
		own := inSet(nft.AffinityKey(a.sp.Name, l), nft.AffinityEndpoints)
		remember.Rules = append(remember.Rules, nft.Rule{proto, own, nft.Remember{Map: clients, Timeout: a.sp.Affinity}})
		own.Not = true
		gone, forget = append(gone, own), append(forget, nft.Forget{Map: clients})
	}
	remember.Rules = append(remember.Rules, slices.Concat(gone, forget, nft.Rule{dropPacket}))
	if a.external {
		chains = append(chains, nft.Chain{
			Name: externalAffinity + a.name,
			Rules: append(fromInside(s, goTo(nft.AffinityMap(a.sp.Name, model.Cluster))),
				nft.Rule{goTo(nft.AffinityMap(a.sp.Name, model.Local))}),
			Comment: "a client of " + port + " comes back",
		})
	}
	return append(chains, remember)
}

// comesBack returns the rules that send a client to the endpoint that a map has for it. An endpoint that left two first
// packets of a connection without an answer is forgotten, and the packet goes on to the choice of another one. One lost
// packet changes nothing.
func (o Options) comesBack(sp *model.ServicePort, clients string) []nft.Rule {
	proto, retry := protocolIs(sp.Name.Protocol), retryOf(sp)
	var rules []nft.Rule
	if retry == retryTCP && proto.Protocol == model.TCP && len(o.Timeouts) > 0 {
		rules = append(rules, nft.Rule{proto, repeated, nft.Forget{Map: clients}})
	}
	return append(rules, o.retrying(retry, nft.Rule{proto, nft.DNAT{Key: sourceKey, Map: clients}}))
}

// verdict returns the verdict for connections to a frontend: to the chain for clients that come back.
func (a affinity) verdict(fe model.Frontend) nft.Verdict {
	if isExternalLocal(fe) {
		return jumpTo(externalAffinity + a.name)
	}
	return jumpTo(nft.AffinityMap(a.sp.Name, fe.TrafficPolicy))
}

func (a affinity) elements(add AddFunc) {
	for _, l := range a.lists {
		for e := range a.sp.In(l) {
			key := nft.AffinityEndpoint(a.sp.Name, l, endpointData(e))
			add(nft.AffinityEndpoints, nft.Element{Key: key, Comment: elementComment(a.sp.Name)})
		}
	}
}

func endpointData(e model.Endpoint) string {
	return string(nft.AppendPort(nft.AppendAddr(nil, e.Addr.Addr()), e.Addr.Port()))
}

// Purge names a map with clients that no longer fit the service port: their endpoint may be gone, or their timeout has
// changed.
type Purge struct {
	Port model.ServicePortName
	List model.TrafficPolicy
}

// Map is the name of the map.
func (p Purge) Map() string { return nft.AffinityMap(p.Port, p.List) }

// Clients returns the endpoints of the clients that stay in a map that is to be purged, as an element's data, and the
// timeout of these; none if the ruleset does not have the service port.
func (r *Ruleset) Clients(p Purge) (endpoints map[string]bool, timeout time.Duration) {
	sp, ok := r.snapshot.ServicePort(p.Port)
	if !ok {
		return nil, 0
	}
	endpoints = map[string]bool{}
	for e := range sp.In(p.List) {
		endpoints[endpointData(e)] = true
	}
	return endpoints, sp.Affinity
}

func (a affinity) clients() (list []Purge) {
	for _, l := range a.lists {
		list = append(list, Purge{a.sp.Name, l})
	}
	return list
}

// stale returns those of the maps of a service port with clients that may not fit any more; old is the version before.
func stale(maps []Purge, old, now *model.ServicePort) []Purge {
	before := affinityFor(old)
	return slices.DeleteFunc(maps, func(p Purge) bool {
		return !slices.Contains(before.lists, p.List) || old.Affinity == now.Affinity && !lacks(now, old, p.List)
	})
}

// lacks reports whether a list of a service port lacks an endpoint that another version has.
func lacks(now, old *model.ServicePort, l model.TrafficPolicy) bool {
	for e := range old.In(l) {
		if i, found := now.Find(e.Addr); !found || !now.Endpoints[i].In(l) {
			return true
		}
	}
	return false
}
