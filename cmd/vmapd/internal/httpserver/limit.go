package httpserver

import (
	"net"
	"sync"
)

// limitedListener has at most so many connections at a time. Further ones wait in the
// kernel's queue.
type limitedListener struct {
	net.Listener
	slots     chan struct{}
	closed    chan struct{}
	closeOnce func()
}

func limit(l net.Listener, n int) net.Listener {
	closed := make(chan struct{})
	return &limitedListener{
		Listener: l, slots: make(chan struct{}, n),
		closed: closed, closeOnce: sync.OnceFunc(func() { close(closed) }),
	}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limitedListener) Close() error {
	l.closeOnce()
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
