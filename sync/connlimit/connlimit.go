// Package connlimit bounds the connections of an HTTP server so that silent ones do not shut out
// requests.
//
// A server that accepts a number of connections, and lets further ones wait, is closed for all
// clients by a few that connect and say nothing: kubelet's probe waits with the others until
// a time limit ends some of them. Here every connection is accepted. If there are too many, the
// Listener closes one that has no complete request:
//
//   - from the source with the most connections, so that one host costs only itself;
//   - of these, the one that was silent longest.
//
// Bytes of a header and of a TLS handshake do not count as a request, however many come. Only if
// all connections are being answered, one of these is closed.
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

	mu      sync.Mutex
	conns   map[*conn]struct{}
	sources map[netip.Prefix]*source
}

// source is a host with connections: an IPv4 address, or an IPv6 network of /64, of which a
// host may have all addresses.
type source struct {
	from  netip.Prefix
	conns int
}

// conn is a connection of a Listener. Its Listener's mutex guards its fields.
type conn struct {
	net.Conn
	of     *Listener
	from   *source
	busy   bool      // a request is being answered
	silent time.Time // since when, unless it is busy
	gone   bool
}

// New returns a Listener that keeps at most so many connections of l.
func New(l net.Listener, most int) *Listener {
	return &Listener{Listener: l, most: most, conns: map[*conn]struct{}{}, sources: map[netip.Prefix]*source{}}
}

// Serve serves HTTP on a Listener, perhaps through another one around it, such as TLS's.
func Serve(s *http.Server, l net.Listener) error {
	inner := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(key{}).(*conn); ok {
			c.set(true)
			defer c.set(false)
		}
		inner.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = secure.NetConn()
		}
		return context.WithValue(ctx, key{}, c)
	}
	return s.Serve(l)
}

// key is that of the connection in a request's context.
type key struct{}

// Accept waits for the next connection. An error that is not the Listener's end is temporary
// for net/http: most are the client's or pass, like ENOBUFS, but an http.Server ends with each
// that it does not know.
func (l *Listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		if !errors.Is(err, net.ErrClosed) {
			err = passing{err}
		}
		return nil, err
	}
	return l.add(accepted), nil
}

// passing is an error after which an http.Server pauses and continues.
type passing struct{ error }

func (passing) Timeout() bool   { return false }
func (passing) Temporary() bool { return true }
func (p passing) Unwrap() error { return p.error }

// Len returns the number of connections.
func (l *Listener) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

func (l *Listener) add(accepted net.Conn) *conn {
	c := &conn{Conn: accepted, of: l, silent: time.Now()}
	l.mu.Lock()
	var victim *conn
	if len(l.conns) >= l.most {
		victim = l.victim()
		l.remove(victim)
	}
	from := sourceOf(accepted.RemoteAddr())
	c.from = l.sources[from]
	if c.from == nil {
		c.from = &source{from: from}
		l.sources[from] = c.from
	}
	c.from.conns++
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	if victim != nil {
		victim.end()
	}
	return c
}

// victim returns the connection to close. The number of connections is small.
func (l *Listener) victim() (found *conn) {
	for c := range l.conns {
		if found == nil || c.before(found) {
			found = c
		}
	}
	return found
}

// before reports whether c is closed rather than o.
func (c *conn) before(o *conn) bool {
	if c.busy != o.busy {
		return o.busy
	}
	return cmp.Or(cmp.Compare(o.from.conns, c.from.conns), c.silent.Compare(o.silent)) < 0
}

func (l *Listener) remove(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	delete(l.conns, c)
	if c.from.conns--; c.from.conns == 0 {
		delete(l.sources, c.from.from)
	}
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

// set notes the begin or the end of an answer.
func (c *conn) set(busy bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy, c.silent = busy, time.Now()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// end closes the connection with a reset, so that many of them leave nothing in TIME_WAIT.
func (c *conn) end() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed
	}
	_ = c.Conn.Close()
}
