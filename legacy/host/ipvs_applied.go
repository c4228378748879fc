package host

import (
	"fmt"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// State returns the state of the last Apply that worked, or nil. It may be called during Apply.
func (b *IPVS) State(family model.Family) *ipvs.State {
	for _, f := range b.families {
		if f.family == family {
			return f.applied.Load()
		}
	}
	return nil
}

// ConnectionsTo returns the number of connections that virtual servers have got since they were made, as the
// kernel counts them: it sums each two seconds. It uses a socket of its own, and may be called during Apply.
func (b *IPVS) ConnectionsTo(keys []ipvs.Key) (uint64, error) {
	t, err := openServers()
	if err != nil {
		return 0, err
	}
	defer t.Close()
	var sum uint64
	for _, k := range keys {
		s, err := t.GetService(service(k, ipvs.Server{}))
		switch {
		case unlessGone(err) != nil:
			return 0, fmt.Errorf("read virtual server %v: %w", k, err)
		case err == nil:
			sum += uint64(s.Stats.Connections)
		}
	}
	return sum, nil
}
