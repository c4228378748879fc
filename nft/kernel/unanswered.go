package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Unanswered reads the attempts of both families in the last [nft.UnansweredFor]. There are none while no Service has
// outlier detection. It may be called at any time, and does not wait for Apply. An empty list takes microseconds.
func (b *Backend) Unanswered(ctx context.Context) ([]model.Attempt, error) {
	b.countsBusy.Lock()
	defer b.countsBusy.Unlock()
	var list []model.Attempt
	for _, st := range b.families {
		c, err := b.counts.open(b.dialer)
		if err != nil {
			return nil, err
		}
		packets := packetCounts{}
		err = c.readCounters(ctx, st.family, nft.Unanswered, packets)
		if err != nil && !errors.Is(err, unix.ENOENT) { // no table yet
			b.counts.close()
			return nil, &model.FamilyError{Family: st.family, Err: fmt.Errorf("read set %s: %w", nft.Unanswered, err)}
		}
		for key, n := range packets {
			if a, ok := attempt(key); ok {
				a.Packets = int(n)
				list = append(list, a)
			}
		}
	}
	return list, nil
}

// attempt reads an element's key: endpoint, port, client.
func attempt(key string) (a model.Attempt, ok bool) {
	width := (len(key) - nft.RegisterSize) / 2
	if width < nft.RegisterSize {
		return a, false
	}
	a.Endpoint, ok = nft.Endpoint(key[:width+nft.RegisterSize])
	if !ok {
		return a, false
	}
	a.Client, ok = netip.AddrFromSlice([]byte(key[width+nft.RegisterSize:]))
	return a, ok
}
