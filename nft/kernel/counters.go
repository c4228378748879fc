package kernel

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// options returns the options to compile a family with, by the settings of the kernel as they are now.
func (b *Backend) options(st *familyState) compile.Options {
	o := compile.Options{Counters: b.wants.Counters && st.uncountable == nil, FastPath: b.wants.FastPath && st.slow == nil}
	if st.final == nil {
		o.Timeouts = nft.RetryTimeouts(b.wants.Setting)
	}
	return o
}

// Count is the number of new connections to one service port.
type Count struct {
	Name   model.ServicePortName
	Family model.Family
	// Connections are first packets to any of its frontends since counting began or the frontend was made, also refused
	// ones. They outlive this process, and begin at 0 when the table is replaced or the node starts.
	Connections uint64
}

// Connections reads the counts of all service ports, in the order of FamilySnapshot.ServicePorts. A service port that
// has just been made or changed may be missing. There are none without [Options].Counters; if the kernel can't count,
// the error is the reason. It may be called at any time, and does not wait for Apply. An error of one family does not
// affect the other.
func (b *Backend) Connections(ctx context.Context) ([]Count, error) {
	var counts []Count
	var errs []error
	for _, st := range b.families {
		err := st.uncountable
		if counted := st.read().ruleset; counted != nil && counted.Options.Counters {
			counts, err = b.appendCounts(ctx, counts, counted)
		}
		if err != nil {
			errs = append(errs, &model.FamilyError{Family: st.family, Err: err})
		}
	}
	return counts, errors.Join(errs...)
}

// appendCounts reads the counters of a snapshot's service ports, by a connection that Apply does not use. The kernel
// lists a set in pieces, and may miss elements while others come and go. Then a service port is missing in this
// reading: a sum without one would look as if counting had begun anew.
func (b *Backend) appendCounts(ctx context.Context, counts []Count, r *compile.Ruleset) ([]Count, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	packets := packetCounts{}
	for _, set := range r.Sets {
		if !set.Counter {
			continue
		}
		if err := b.reader.elements(r.Family, set.Name, packets.add(ctx)); err != nil {
			return counts, fmt.Errorf("read set %s: %w", set.Name, err)
		}
	}
	for sp, keys := range r.Counters() {
		if all, complete := packets.sum(keys); complete {
			counts = append(counts, Count{Name: sp.Name, Family: r.Family, Connections: all})
		}
	}
	return counts, nil
}

// packetCounts are packets by an element's key. Keys of different sets differ in length.
type packetCounts map[string]uint64

// sum returns the packets of some counters, and whether all are there.
func (p packetCounts) sum(keys []string) (sum uint64, complete bool) {
	for _, key := range keys {
		n, ok := p[key]
		if !ok {
			return 0, false
		}
		sum += n
	}
	return sum, true
}

// add returns a function that takes an element. It is written out, without a decoder's value for
// each attribute, because there may be 100,000 elements at each scrape.
func (p packetCounts) add(ctx context.Context) func(element []byte) error {
	return func(element []byte) error {
		key := nfnl.Value(element, unix.NFTA_SET_ELEM_KEY)
		counter := nfnl.First(nfnl.First(element, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
		packets := nfnl.First(counter, unix.NFTA_COUNTER_PACKETS)
		const size = 8
		if len(key) == 0 || len(packets) != size {
			return fmt.Errorf("element %x: no counter", key)
		}
		p[string(key)] = nfnl.Uint64(packets)
		return ctx.Err()
	}
}
