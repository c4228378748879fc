package simulate

import (
	"net/netip"
	"slices"

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

// stale are clients with an endpoint that was taken from the kernel's list: how often something had failed when the
// Apply began that took it away.
type stale map[client]int64

// noteStale notes the clients that the kernel remembers with an endpoint that is not in its list of endpoints, by each
// of the possible snapshots. The caller holds the mutex.
func (w *world) noteStale() {
	now := stale{}
	for _, s := range w.between {
		if s == nil {
			continue
		}
		for _, f := range model.Families {
			for sp := range s.Family(f).ServicePorts() {
				if sp.Affinity > 0 {
					w.noteStaleOf(f, sp.Name, now)
				}
			}
		}
	}
	w.stale = now
}

// noteStaleOf notes those of one service port.
func (w *world) noteStaleOf(f model.Family, name model.ServicePortName, now stale) {
	for _, l := range model.TrafficPolicies {
		set := nft.AffinityMap(name, l)
		endpoints := w.kernel.Elements(protocolOf[f], nft.TableName, nft.AffinityEndpoints)
		for key, data := range w.kernel.Elements(protocolOf[f], nft.TableName, set) {
			if _, has := endpoints[nft.AffinityEndpoint(name, l, data)]; has {
				continue
			}
			c := client{f, set, key, data}
			was, known := w.stale[c]
			if !known {
				was = w.began
			}
			now[c] = was
		}
	}
}

// mayComeBack reports whether a connection may be lost because its client is remembered at an endpoint that is gone:
// the rules drop its first packet and forget the client, which tries again. Clients are purged at the end of each
// Apply. So one is in progress, or something failed since it began, or a daemon ended. An endpoint that is gone from
// one list and serves in the other is reached until then.
func (t *traffic) mayComeBack(d *model.Decision, to netip.AddrPort, got modeltest.Outcome) bool {
	c := client{t.family, nft.AffinityMap(d.Port.Name, d.TrafficPolicy), string(nft.AppendAddr(nil, d.Source)), ""}
	c.data = string(nft.AppendPort(nft.AppendAddr(nil, to.Addr()), to.Port()))
	is, known := t.stale[c]
	if !known || !t.applying.Load() && t.trouble.Load() == is {
		return false
	}
	if got.Verdict == model.Dropped {
		_, gone := t.table.Elements[nft.GoneEndpoints][string(nft.AppendPort(nft.AppendAddr(nil, to.Addr()), to.Port()))]
		return gone
	}
	_, reached := got.To[to]
	return reached && slices.ContainsFunc(d.Port.Endpoints, func(e model.Endpoint) bool { return e.Addr == to })
}
