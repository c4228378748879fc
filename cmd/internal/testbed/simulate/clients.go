package simulate

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
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
	late    bool  // a packet noted it since that Apply began, so that the batch could not delete it
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

// mayBeNoted returns the clients that a packet may note now: those whose endpoint is in the kernel's list. The caller holds the mutex.
func (w *world) mayBeNoted() []noted {
	return slices.DeleteFunc(w.clients(), func(c noted) bool {
		_, gone := w.stale[c.client]
		return gone
	})
}

// noteRemembered notes the clients that an Apply finds when it begins. The caller holds the mutex.
func (w *world) noteRemembered() {
	w.remembered = map[client]bool{}
	for _, c := range w.clients() {
		w.remembered[c.client] = true
	}
}

// noteAgain lets packets that were on their way during a batch note the clients once more that the batch made
// the kernel forget. The caller holds the mutex.
func (w *world) noteAgain(before []noted) {
	for _, c := range before {
		_, there := w.kernel.Elements(protocolOf[c.family], nft.TableName, c.set)[c.key]
		if !there && w.kernel.Update(protocolOf[c.family], nft.TableName, c.set, []byte(c.key), []byte(c.data), c.affinityTime) {
			w.note("a packet that was on its way notes a client of %s again", c.set)
			w.stale[c.client] = stale{time.Now(), w.began, true}
			if n := w.probes.IntN(2 * len(nftfake.Faults)); n < len(nftfake.Faults) { // the purge may fail
				w.beside.Store(int64(nftfake.Faults[n]))
			}
		}
	}
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
			was = stale{time.Now(), w.began, !w.remembered[c.client]}
		}
		now[c.client] = was
	}
	w.stale = now
}

// mayComeBack reports whether a connection may be sent to an endpoint that is gone, or lost for that, by a client of it. Clients
// are purged at once: so an Apply is at work, or something failed since it began, or a daemon ended.
func (t *traffic) mayComeBack(d *model.Decision, to netip.AddrPort, got modeltest.Outcome) bool {
	c := client{t.family, nft.AffinityMap(d.Port.Name, d.TrafficPolicy), string(nft.AppendAddr(nil, d.Source)), ""}
	c.data = string(nft.AppendPort(nft.AppendAddr(nil, to.Addr()), to.Port()))
	is, known := t.stale[c]
	if !known || !t.applying.Load() && t.trouble.Load() == is.trouble && time.Since(is.since) > behindApply {
		return false
	}
	if got.Verdict == model.Dropped { // by the set of endpoints that are gone. The client tries again.
		key := nft.AppendProto(nft.AppendAddr(nil, to.Addr()), d.Protocol)
		_, watched := t.table.Elements[nft.GoneEndpoints].Get(string(nft.AppendPort(key, to.Port())))
		return watched
	}
	_, reached := got.To[to]
	return reached && (time.Since(is.since) >= nft.DeclarationOf(nft.GoneEndpoints).Timeout || // nothing watches it any more
		is.late && d.Protocol == model.UDP || // see nft.Batch.Forgotten
		slices.ContainsFunc(d.Port.Endpoints, func(e model.Endpoint) bool { return e.Addr == to })) // for other clients
}
