package conntrack

import (
	"context"
	"sync"

	"github.com/vmapd/vmapd/model"
)

// Lister lists entries of the kernel's table, on demand. Its connection stays open, see table. The zero
// value is ready; any number of goroutines may use it.
type Lister struct {
	NetNS int // a file descriptor of the network namespace; 0: the process' own

	mu    sync.Mutex
	table *table // nil: none yet
}

// List calls each for the translated entries of a family whose original destination has one of some
// protocols and ports; the addresses are left to the caller.
func (l *Lister) List(ctx context.Context, of model.Family, ports []model.VIP, each func(Entry)) error {
	wanted := map[model.VIP]bool{} // without addresses
	for _, p := range ports {
		wanted[model.VIP{Protocol: p.Protocol, Port: p.Port}] = true
	}
	return l.list(ctx, of, func(f *flow) {
		translated := f.replySource != f.dest && !f.zone // IPVS sets no status
		if translated && wanted[model.VIP{Protocol: f.protocol, Port: f.dest.Port()}] {
			each(f.entry())
		}
	})
}

// list calls each for the entries of a family.
func (l *Lister) list(ctx context.Context, of model.Family, each func(*flow)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		l.table = &table{dial: thisKernel(l.NetNS)}
	}
	_, _, err := l.table.sweep(ctx, of, 0, func(f *flow) bool {
		each(f)
		return false
	})
	return err
}
