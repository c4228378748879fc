package conntrack

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/vmapd/vmapd/model"
)

// Translated is an entry of the kernel's table whose destination was translated.
type Translated struct {
	Protocol model.Protocol
	Dest     netip.AddrPort // that the client asked for
	Endpoint netip.AddrPort
}

// Lister lists entries of the kernel's table, on demand. Its connection stays open, see table. The zero
// value is ready; any number of goroutines may use it.
type Lister struct {
	NetNS int // a file descriptor of the network namespace; 0: the process' own

	mu    sync.Mutex
	table *table // nil: none yet
}

// List calls each for the translated entries of a family whose original destination has one of some
// protocols and ports; the addresses are left to the caller.
func (l *Lister) List(ctx context.Context, f model.Family, ports []model.VIP, each func(Translated)) error {
	wanted := map[model.VIP]bool{} // without addresses
	var protocols []model.Protocol
	for _, p := range ports {
		wanted[model.VIP{Protocol: p.Protocol, Port: p.Port}] = true
		if !slices.Contains(protocols, p.Protocol) {
			protocols = append(protocols, p.Protocol)
		}
	}
	return l.list(ctx, f, protocols, func(f *flow) {
		if f.replySource == f.dest || f.zone { // IPVS sets no status
			return
		}
		if wanted[model.VIP{Protocol: f.protocol, Port: f.dest.Port()}] {
			each(Translated{f.protocol, f.dest, f.replySource})
		}
	})
}

// CountFast returns the number of translated entries of TCP and UDP of a family whose packets take the fast
// path of a flowtable, ours or another program's. It reads the whole table.
func (l *Lister) CountFast(ctx context.Context, f model.Family) (n int, err error) {
	err = l.list(ctx, f, []model.Protocol{model.TCP, model.UDP}, func(f *flow) {
		if f.fast && f.translated {
			n++
		}
	})
	return n, err
}

// list calls each for the entries of some protocols; old kernels list all.
func (l *Lister) list(ctx context.Context, f model.Family, protocols []model.Protocol, each func(*flow)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		l.table = newTable(thisKernel(l.NetNS))
	}
	var queries []query
	for _, p := range protocols {
		queries = append(queries, query{family: f, protocol: p})
	}
	_, _, err := l.table.sweep(ctx, queries, func(f *flow) bool {
		each(f)
		return false
	})
	return err
}
