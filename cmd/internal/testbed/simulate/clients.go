package simulate

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// client is an element of a map of clients.
type client struct {
	family    model.Family
	set       string
	key, data string
}

// noted is a client with what its service port has.
type noted struct {
	client
	affinityTime time.Duration
	endpoints    string // the set of the endpoints that a client can have
}

// stale is what the world knows of a client whose endpoint was taken from the kernel's list.
type stale struct {
	since   time.Time
	trouble int64 // how often something had failed when the Apply began that took the endpoint away
}

// clients returns what the kernel remembers, sorted for each of the possible snapshots, the last one's first. The caller
// holds the mutex.
func (w *world) clients() (all []noted) {
	seen := map[client]bool{}
	for _, s := range slices.Backward(w.between) {
		if s == nil {
			continue
		}
		for _, f := range model.Families {
			for sp := range s.Family(f).ServicePorts() {
				for _, l := range model.TrafficPolicies {
					if sp.Affinity > 0 {
						all = append(all, w.clientsOf(f, sp, l, seen)...)
					}
				}
			}
		}
	}
	return all
}

// clientsOf returns the clients of a service port that were not seen before.
func (w *world) clientsOf(f model.Family, sp *model.ServicePort, l model.TrafficPolicy, seen map[client]bool) (all []noted) {
	name := nft.AffinityMap(sp.Name, l)
	elements := w.kernel.Elements(protocolOf[f], nft.TableName, name)
	for _, key := range slices.Sorted(maps.Keys(elements)) {
		if c := (client{f, name, key, elements[key]}); !seen[c] {
			seen[c] = true
			all = append(all, noted{c, sp.Affinity, nft.OwnEndpoints(sp.Name, l)})
		}
	}
	return all
}

// noteStale notes whose endpoint is not in the kernel's list. The caller holds the mutex.
func (w *world) noteStale() {
	now := map[client]stale{}
	for _, c := range w.clients() {
		if _, has := w.kernel.Elements(protocolOf[c.family], nft.TableName, c.endpoints)[c.data]; has {
			continue
		}
		was, known := w.stale[c.client]
		if !known {
			was = stale{time.Now(), w.began}
		}
		now[c.client] = was
	}
	w.stale = now
}

// mayComeBack reports whether a connection may be lost because its client is remembered at an endpoint that is gone: the
// rules drop its first packet, and forget the client, who tries again. Clients are purged behind each Apply. So one is at work,
// or something failed since it began, or a daemon ended. An endpoint that is gone from one list and serves in the other is
// reached until then.
func (t *traffic) mayComeBack(d *model.Decision, to netip.AddrPort, got modeltest.Outcome) bool {
	c := client{t.family, nft.AffinityMap(d.Port.Name, d.TrafficPolicy), string(nft.AppendAddr(nil, d.Source)), ""}
	c.data = string(nft.AppendPort(nft.AppendAddr(nil, to.Addr()), to.Port()))
	is, known := t.stale[c]
	if !known || !t.applying.Load() && t.trouble.Load() == is.trouble && time.Since(is.since) > behindApply {
		return false
	}
	if got.Verdict == model.Dropped {
		key := nft.AppendProto(nft.AppendAddr(nil, to.Addr()), d.Protocol)
		_, removed := t.table.Elements[nft.RemovedEndpoints][string(nft.AppendPort(key, to.Port()))]
		return removed
	}
	_, reached := got.To[to]
	return reached && slices.ContainsFunc(d.Port.Endpoints, func(e model.Endpoint) bool { return e.Addr == to })
}
