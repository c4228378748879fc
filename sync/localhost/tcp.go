package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
)

// tcpListener accepts TCP connections on one address.
type tcpListener struct {
	*env
	socket  *net.TCPListener
	chooser *chooser
	slots   chan struct{}      // one for each connection there may be
	ctx     context.Context    // ends with close
	cancel  context.CancelFunc // of ctx
	loop    sync.WaitGroup
}

func newTCPListener(e *env, at netip.AddrPort, c *chooser) (*tcpListener, error) {
	socket, err := e.open.listenTCP(e.ctx, at)
	if err != nil {
		return nil, err
	}
	l := &tcpListener{env: e, socket: socket, chooser: c, slots: make(chan struct{}, e.limits.conns)}
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	l.loop.Go(l.accept)
	return l, nil
}

// endpointsChanged does nothing: connections stay where they are.
func (l *tcpListener) endpointsChanged() {}

func (l *tcpListener) close() {
	l.cancel()
	_ = l.socket.Close()
	l.loop.Wait()
}

// accept starts to serve connections, as many at a time as there are slots. Further
// clients wait in the kernel's queue.
func (l *tcpListener) accept() {
	var pause backoff
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		client, err := l.socket.AcceptTCP()
		if err == nil {
			pause = backoff{}
			l.counts.accepted[model.FamilyOf(sourceOf(client))].Add(1)
			l.conns.Go(func() {
				defer func() { <-l.slots }()
				l.serve(client)
			})
			continue
		}
		<-l.slots
		if !pause.after(l.ctx, l.log, l.socket.Addr(), err) {
			return
		}
	}
}

// serve forwards one connection until it ends. It outlives the listener.
func (l *tcpListener) serve(client *net.TCPConn) {
	server, err := l.connect(sourceOf(client))
	if err != nil {
		reset(client)
		l.log.LogAttrs(l.env.ctx, slog.LevelDebug, "reset a connection to a node port on loopback",
			slog.Any("listener", l.socket.Addr()), slog.Any("client", client.RemoteAddr()), slog.Any("err", err))
		return
	}
	stop := context.AfterFunc(l.env.ctx, func() {
		reset(client)
		reset(server)
	})
	defer stop()
	relay(client, server, l.limits.grace)
}

// connect connects to one endpoint after the other, each once, until one accepts.
func (l *tcpListener) connect(client netip.Addr) (*net.TCPConn, error) {
	deadline := time.Now().Add(l.limits.connect)
	var tried []netip.AddrPort
	err := errors.New("no endpoint is left")
	// Not a context for all attempts: an attempt that runs into the deadline fails a moment
	// before the context is done, and the other endpoints would fail at once.
	for now := time.Now(); now.Before(deadline) && l.env.ctx.Err() == nil; now = time.Now() {
		endpoint, ok := l.chooser.choose(client, tried)
		if !ok {
			break
		}
		var server *net.TCPConn
		if server, err = l.dial(endpoint, min(l.limits.attempt, deadline.Sub(now))); err == nil {
			l.chooser.remember(client, endpoint)
			return server, nil
		}
		tried = append(tried, endpoint)
		if ours(err) {
			break
		}
	}
	return nil, fmt.Errorf("connect to any of %d endpoints, the last error: %w", len(tried), err)
}

func (l *tcpListener) dial(endpoint netip.AddrPort, timeout time.Duration) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(l.env.ctx, timeout)
	defer cancel()
	server, err := l.open.dialTCP(ctx, endpoint)
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", endpoint, err)
	}
	return server, nil
}

func sourceOf(c *net.TCPConn) netip.Addr {
	return c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// relay forwards in both directions until both have ended, and closes both connections.
// The receiver of an incomplete direction gets a reset, so that it does not take the data
// for complete.
//
// If one direction breaks, because one of the peers is gone, the other direction may still
// hold data that this peer had sent before. It need not end by itself, as a peer that only
// waits never notices. So it is given a short time.
func relay(client, server *net.TCPConn, grace time.Duration) {
	forward := func(to, from *net.TCPConn) error {
		_, err := io.Copy(to, from) // by splice(2)
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil {
			end := time.Now().Add(grace)
			_ = client.SetDeadline(end) // fails only if it is closed
			_ = server.SetDeadline(end)
		}
		return err
	}
	toServer := make(chan error, 1)
	go func() { toServer <- forward(server, client) }()
	toClient := forward(client, server)
	finish(server, <-toServer)
	finish(client, toClient)
}

// finish closes a connection whose sender's data was forwarded, all of it if err is nil.
func finish(c *net.TCPConn, err error) {
	if err != nil {
		reset(c)
		return
	}
	_ = c.Close() // nothing can be done about it
}

// reset closes a connection so that the peer gets an error instead of an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close() // nothing can be done about it
}
