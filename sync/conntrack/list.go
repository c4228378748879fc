package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Translated is an entry of the kernel's table whose destination was translated.
type Translated struct {
	Protocol model.Protocol
	Dest     netip.AddrPort // that the client asked for
	Endpoint netip.AddrPort
}

// Lister lists entries of the kernel's table, on demand. Its connection stays open, see kernel. The zero
// value is ready; any number of goroutines may use it.
type Lister struct {
	NetNS int // a file descriptor of the network namespace; 0: the process' own

	mu    sync.Mutex
	table *table // nil: none yet
}

// List calls each for the translated entries of a family whose original destination has one of some
// protocols and ports; the addresses are left to the caller, and an entry may come more often than once
// only if a port does. If there are many ports, entries with others may come, too.
func (l *Lister) List(ctx context.Context, f model.Family, ports []model.VIP, each func(Translated)) error {
	return l.on(func(t *table) error { return t.list(ctx, listQueries(f, ports), each) })
}

// CountFast returns the number of translated entries of TCP and UDP of a family whose packets take the fast
// path of a flowtable, ours or another program's. It reads the whole table.
func (l *Lister) CountFast(ctx context.Context, f model.Family) (n int, err error) {
	queries := []query{{family: f, protocol: model.TCP}, {family: f, protocol: model.UDP}}
	err = l.on(func(t *table) error {
		return t.each(ctx, queries, func(f *flow) {
			if f.fast && f.translated {
				n++
			}
		})
	})
	return n, err
}

// on calls do with the connection to the kernel.
func (l *Lister) on(do func(*table) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table == nil {
		conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: l.NetNS, MessageBufferSize: bufferSize})
		if err != nil {
			return fmt.Errorf("open netfilter netlink: %w", err)
		}
		l.table = &table{dumps: conn, ask: query.message}
	}
	err := do(l.table)
	if err != nil { // the rest of an answer may be on its way
		_ = l.table.dumps.Close()
		l.table = nil
	}
	return err
}

// listQueries returns the queries for some protocols and ports.
func listQueries(f model.Family, ports []model.VIP) (list []query) {
	seen := map[query]bool{}
	for _, p := range ports {
		q := query{family: f, protocol: p.Protocol, port: p.Port}
		if len(ports) > maxQueries {
			q.port = 0
		}
		if !seen[q] {
			seen[q] = true
			list = append(list, q)
		}
	}
	return list
}

func (t *table) list(ctx context.Context, queries []query, each func(Translated)) error {
	return t.each(ctx, queries, func(f *flow) {
		if f.replySource != f.dest && !f.zone { // IPVS sets no status
			each(Translated{f.protocol, f.dest, f.replySource})
		}
	})
}

// each calls do for each entry that a query asks for.
func (t *table) each(ctx context.Context, queries []query, do func(*flow)) error {
	stop := context.AfterFunc(ctx, t.interrupt)
	defer stop()
	for _, q := range queries {
		for f, err := range t.flows(q) {
			if err != nil {
				return errors.Join(ctx.Err(), err)
			}
			if q.matches(&f) { // old kernels list all
				do(&f)
			}
		}
	}
	return ctx.Err()
}
