// Package connlimit bounds the connections of an HTTP server so that silent ones do not shut out requests.
//
// A server that accepts a number of connections, and lets further ones wait, is closed for all clients by a few that
// connect and say nothing: kubelet's probe waits with the others until a time limit ends some of them. Here every
// connection is accepted. If there are too many, the Listener closes one that has no complete request:
//
//   - from the source with the most connections, so that one host costs only itself;
//   - of these, the one that was silent longest.
//
// Bytes of a header are no request, however many come. Only if all connections are being answered, one of these
// is closed.
package connlimit

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Listener accepts all connections, and keeps a limited number of them.
type Listener struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// conn is a connection of a Listener. Its Listener's mutex guards its fields.
type conn struct {
	net.Conn
	of     *Listener
	from   netip.Prefix // a host: an IPv4 address, or an IPv6 network of /64, of which it may have all addresses
	busy   bool         // a request is being answered
	silent time.Time    // since when, unless it is busy
}

// New returns a Listener that keeps at most so many connections of l.
func New(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: most, conns: map[*conn]struct{}{}}
}

// Serve serves HTTP on a Listener.
func Serve(s *http.Server, l *Listener) error {
	inner := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(key{}).(*conn); ok {
			c.set(true)
			defer c.set(false)
		}
		inner.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, c) }
	return s.Serve(l)
}

type key struct{}

// Accept waits for the next connection. Errors but the Listener's end pass, like ENOBUFS, or are the client's; an
// http.Server ends with each that it does not know.
func (l *Listener) Accept() (net.Conn, error) {
	const pause = 10 * time.Millisecond
	accepted, err := l.Listener.Accept()
	for ; err != nil; accepted, err = l.Listener.Accept() {
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		time.Sleep(pause)
	}
	c := &conn{Conn: accepted, of: l, from: sourceOf(accepted.RemoteAddr()), silent: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		l.victim().end()
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// victim returns the connection to close. The number of connections is small.
func (l *Listener) victim() (found *conn) {
	conns := map[netip.Prefix]int{}
	for c := range l.conns {
		conns[c.from]++
	}
	for c := range l.conns {
		switch {
		case found == nil, found.busy && !c.busy:
			found = c
		case c.busy == found.busy &&
			cmp.Or(cmp.Compare(conns[found.from], conns[c.from]), c.silent.Compare(found.silent)) < 0:
			found = c
		}
	}
	return found
}

func sourceOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	const network = 64
	p, _ := addr.Prefix(min(network, addr.BitLen())) // fails for no number of bits that it has
	return p
}

func (c *conn) set(busy bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy, c.silent = busy, time.Now()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// end closes the connection with a reset, so that many of them leave nothing in TIME_WAIT.
func (c *conn) end() {
	delete(c.of.conns, c)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed
	}
	_ = c.Conn.Close()
}
