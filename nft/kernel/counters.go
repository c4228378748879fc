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
	o := compile.Options{Counters: b.wants.Counters, FastPath: b.wants.FastPath && st.lacks[fastPathNeeds] == nil}
	if st.lacks[retryNeeds] == nil {
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
// has just been made or changed may be missing. There are none without [Options].Counters. It may be called at any
// time, and does not wait for Apply. An error of one family does not affect the other.
func (b *Backend) Connections(ctx context.Context) ([]Count, error) {
	var counts []Count
	var errs []error
	for _, st := range b.families {
		counted := st.read().ruleset
		if counted == nil || !counted.Options.Counters {
			continue
		}
		of, err := b.counts(ctx, counted)
		if counts = append(counts, of...); err != nil {
			errs = append(errs, &model.FamilyError{Family: st.family, Err: err})
		}
	}
	return counts, errors.Join(errs...)
}

// counts reads the counters of a snapshot's service ports, by a connection that Apply does not use. The kernel lists a
// set in pieces, and may miss elements while others come and go. Then a service port is missing in this reading: a sum
// without one would look as if counting had begun anew.
func (b *Backend) counts(ctx context.Context, r *compile.Ruleset) (counts []Count, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	packets := map[string]uint64{} // by an element's key; keys of different sets differ in length
	for _, set := range r.Sets {
		if !set.Counter {
			continue
		}
		err := b.reader.elements(r.Family, set.Name, func(element []byte) error {
			counter := nfnl.First(nfnl.First(element, unix.NFTA_SET_ELEM_EXPR), unix.NFTA_EXPR_DATA)
			key := string(nfnl.Value(element, unix.NFTA_SET_ELEM_KEY))
			packets[key] = nfnl.Uint64(nfnl.First(counter, unix.NFTA_COUNTER_PACKETS))
			return ctx.Err()
		})
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set.Name, err)
		}
	}
	for sp, keys := range r.Counters() {
		count, complete := Count{Name: sp.Name, Family: r.Family}, true
		for _, key := range keys {
			n, found := packets[key]
			count.Connections += n
			complete = complete && found
		}
		if complete {
			counts = append(counts, count)
		}
	}
	return counts, nil
}
