package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve serves HTTP with a limited number of connections. If further ones waited, a few that say nothing would close a
// server for all: so each is accepted, and the one that was silent longest is closed for it. Bytes of a header are no
// request. Only if all connections are being answered, one of these is closed.
func Serve(s *http.Server, l net.Listener, most int) error {
	limit(s, most)
	return s.Serve(patient{l})
}

func limit(s *http.Server, most int) *conns {
	c, inner := &conns{most: most, all: map[net.Conn]use{}}, s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(key{}).(net.Conn)
		c.set(conn, true)
		defer c.set(conn, false)
		inner.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, key{}, conn)
	}
	s.ConnState = c.follow
	return c
}

type key struct{}

// conns are the connections of a server.
type conns struct {
	most int
	mu   sync.Mutex
	all  map[net.Conn]use
}

type use struct {
	busy  bool // a request is being answered
	since time.Time
}

func (c *conns) set(conn net.Conn, busy bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.all[conn]; ok {
		c.all[conn] = use{busy, time.Now()}
	}
}

func (c *conns) follow(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.all) >= c.most {
			c.closeOne()
		}
		c.all[conn] = use{since: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
	case http.StateActive, http.StateIdle:
	}
}

// closeOne closes a connection with a reset, so that many of them leave nothing in TIME_WAIT.
func (c *conns) closeOne() {
	var found net.Conn
	for conn, u := range c.all {
		if of := c.all[found]; found == nil || of.busy && !u.busy || of.busy == u.busy && u.since.Before(of.since) {
			found = conn
		}
	}
	delete(c.all, found)
	if tcp, ok := found.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed
	}
	_ = found.Close()
}

// patient is a listener of which errors but its end pass, like ENOBUFS, or are the client's. An http.Server ends with
// each that it does not know.
type patient struct{ net.Listener }

func (l patient) Accept() (net.Conn, error) {
	const pause = 10 * time.Millisecond
	for {
		conn, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		time.Sleep(pause)
	}
}
