package userspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/model"
)

// connListener accepts connections of TCP or SCTP on one address. Package net takes a socket of SCTP for one of TCP.
type connListener struct {
	*env
	at      *entry
	socket  *net.TCPListener
	sieve   sieve              // of the socket
	sieved  atomic.Bool        // the socket had one
	dropped uint32             // packets that the kernel dropped, as of the last look
	slots   chan struct{}      // one for each connection there may be
	ctx     context.Context    // ends with close
	cancel  context.CancelFunc // of ctx
	loop    sync.WaitGroup
}

// conn is a connection of a client and the one to its endpoint.
type conn struct {
	client, server *net.TCPConn
	endpoint       netip.AddrPort
}

func (c *conn) reset() {
	reset(c.client)
	reset(c.server)
}

func newConnListener(e *env, at *entry) (*connListener, error) {
	listen := e.open.listenTCP
	if at.vip.Protocol == model.SCTP {
		listen = e.open.listenSCTP
	}
	socket, err := listen(e.ctx, netip.AddrPortFrom(at.vip.Addr, at.vip.Port))
	if err != nil {
		return nil, err
	}
	if raw, err := socket.SyscallConn(); err == nil {
		tellInterface(raw, at.vip.Addr, true)
	}
	l := &connListener{env: e, at: at, socket: socket, slots: make(chan struct{}, e.limits.conns)}
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	l.sift()
	l.loop.Go(l.accept)
	return l, nil
}

// changed changes which sources are dropped. Connections stay where they are.
func (l *connListener) changed() { l.sift() }

func (l *connListener) close() {
	l.cancel()
	_ = l.socket.Close()
	l.loop.Wait()
}

// accept starts to serve connections, as many at a time as there are slots, of the listener and of
// all listeners. Further clients wait in the kernel's queue.
func (l *connListener) accept() {
	var pause backoff
	for {
		if !take(l.ctx, l.slots) {
			return
		}
		client, err := l.socket.AcceptTCP()
		if err == nil {
			pause = backoff{}
			if !take(l.ctx, l.allSlots) {
				reset(client)
				return
			}
			l.counts.accepted[l.at.family()].Add(1)
			l.conns.Go(func() {
				defer func() {
					<-l.slots
					<-l.allSlots
				}()
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

// take takes a slot. It reports false if ctx ends before there is one.
func take(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// serve forwards one connection until it ends. It outlives the listener.
func (l *connListener) serve(client *net.TCPConn) {
	if l.sieved.Load() {
		unsift(client)
	}
	d := l.decide(l.at, sourceOf(client), l.interfaceOf(client))
	l.counts.decided(d.Decision)
	c := &conn{client: client}
	var err error
	if d.Verdict == model.Forwarded {
		err = l.connect(d, c)
	} else {
		d.owner.refuse(d.Verdict)
		err = errors.New(d.Verdict.String())
	}
	if err != nil {
		reset(client)
		l.log.LogAttrs(l.env.ctx, slog.LevelDebug, "reset a connection", slog.String("service_port", d.owner.key.name.String()),
			slog.Any("listener", l.socket.Addr()), slog.Any("client", client.RemoteAddr()), slog.Any("err", err))
		return
	}
	d.owner.begin(c)
	defer d.owner.end(c)
	if now := l.current(d.owner); !now.Serves(c.endpoint) {
		d.owner.changed(d.Port, now) // it left before the connection was noted
	}
	stop := context.AfterFunc(l.env.ctx, c.reset)
	defer stop()
	l.relay(d.Protocol, client, c.server)
}

// connect connects to one endpoint after the other, each once, until one accepts.
func (l *connListener) connect(d decision, c *conn) error {
	deadline := time.Now().Add(l.limits.connect)
	var tried []netip.AddrPort
	err := errors.New("no endpoint is left")
	// Not a context for all attempts: an attempt that runs into the deadline fails a moment
	// before the context is done, and the other endpoints would fail at once.
	for now := time.Now(); now.Before(deadline) && l.env.ctx.Err() == nil; now = time.Now() {
		endpoint, ok := l.choose(d, tried)
		if !ok {
			break
		}
		if c.server, err = l.dial(c.client, endpoint, min(l.limits.attempt, deadline.Sub(now))); err == nil {
			c.endpoint = endpoint
			d.owner.forwarded.Add(1)
			d.owner.chooser.remember(d.client, d.TrafficPolicy, endpoint)
			return nil
		}
		tried = append(tried, endpoint)
		if ours(err) {
			break
		}
	}
	l.counts.failed.Add(1)
	d.owner.failed.Add(1)
	return fmt.Errorf("connect to any of %d endpoints, the last error: %w", len(tried), err)
}

// dial connects to an endpoint. With SCTP, there are as many streams as the client sends on.
func (l *connListener) dial(client *net.TCPConn, endpoint netip.AddrPort, timeout time.Duration) (server *net.TCPConn, err error) {
	ctx, cancel := context.WithTimeout(l.env.ctx, timeout)
	defer cancel()
	if l.at.vip.Protocol == model.SCTP {
		streams, _ := streamsOf(client)
		server, err = l.open.dialSCTP(ctx, endpoint, streams)
	} else {
		server, err = l.open.dialTCP(ctx, endpoint)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", endpoint, err)
	}
	return server, nil
}

func sourceOf(c *net.TCPConn) netip.AddrPort {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}
