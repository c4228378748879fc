package simulate

import (
	"maps"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// client is an element of a map of clients.
type client struct {
	family       model.Family
	set          string
	key, data    string
	affinityTime time.Duration
}

// clients returns what the kernel remembers.
func (w *world) clients() (all []client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.between[len(w.between)-1]
	if s == nil {
		return nil
	}
	for _, f := range model.Families {
		for sp := range s.Family(f).ServicePorts() {
			for _, l := range model.TrafficPolicies {
				if sp.Affinity == 0 {
					continue
				}
				name := nft.AffinityMap(sp.Name, l)
				elements := w.kernel.Elements(protocolOf[f], nft.TableName, name)
				for _, key := range slices.Sorted(maps.Keys(elements)) {
					all = append(all, client{f, name, key, elements[key], sp.Affinity})
				}
			}
		}
	}
	return all
}

// noteAgain lets packets that were on their way during a batch note the clients once more that the batch made
// the kernel forget. The caller holds the mutex.
func (w *world) noteAgain(before []client) {
	for _, c := range before {
		_, there := w.kernel.Elements(protocolOf[c.family], nft.TableName, c.set)[c.key]
		if !there && w.kernel.Update(protocolOf[c.family], nft.TableName, c.set, []byte(c.key), []byte(c.data), c.affinityTime) {
			w.note("a packet that was on its way notes a client of %s again", c.set)
			if n := w.probes.IntN(2 * len(nftfake.Faults)); n < len(nftfake.Faults) { // the purge may fail
				w.beside.Store(int64(nftfake.Faults[n]))
			}
		}
	}
}
