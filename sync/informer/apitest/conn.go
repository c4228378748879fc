package apitest

import (
	"io"
	"log"
	"maps"
	"net"
	"slices"
	"sync"
)

// gate knows all connections, and holds them up while it is closed.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil while open
	conns  map[*gatedConn]bool
}

// disconnect closes all connections of now.
func (g *gate) disconnect() {
	g.mu.Lock()
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case closed && g.opened == nil:
		g.opened = make(chan struct{})
	case !closed && g.opened != nil:
		close(g.opened)
		g.opened = nil
	}
}

// pass waits until the gate is open, or done.
func (g *gate) pass(done <-chan struct{}) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened != nil {
		select {
		case <-opened:
		case <-done:
		}
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	out := &gatedConn{Conn: c, gate: l.gate, closed: make(chan struct{})}
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if l.gate.conns == nil {
		l.gate.conns = make(map[*gatedConn]bool)
	}
	l.gate.conns[out] = true
	return out, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// It may have waited for what was sent since the gate closed.
	c.gate.pass(c.closed)
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.gate.pass(c.closed)
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		delete(c.gate.conns, c)
	})
	return c.Conn.Close()
}

// silent is for the complaints of net/http about clients, which are no news to a test.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }
