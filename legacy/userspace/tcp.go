package userspace

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

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// serveTCP accepts connections on one address, as many at a time as there are slots, of the listener and of
// all listeners. Further clients wait in the kernel's queue.
func (f *Forwarder) serveTCP(vip model.VIP, l *net.TCPListener) (closed func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	slots := make(chan struct{}, f.limits.conns)
	var loop sync.WaitGroup
	loop.Go(func() {
		for take(ctx, slots) {
			c, err := l.AcceptTCP()
			if err != nil { // too many open files, or the end
				<-slots
				pause(ctx)
				continue
			}
			if !take(ctx, f.slots) {
				reset(c)
				return
			}
			f.accepted[model.FamilyOf(vip.Addr)].Add(1)
			f.tasks.Go(func() {
				f.forward(vip, c)
				<-slots
				<-f.slots
			})
		}
	})
	return func() {
		cancel()
		_ = l.Close()
		loop.Wait()
	}
}

// pause waits after an error of a listener's socket that passes, unless ctx ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
}

// take takes a slot. It reports false if ctx ends before there is one.
func take(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// forward forwards one connection until it ends. It outlives the listener.
func (f *Forwarder) forward(vip model.VIP, c *net.TCPConn) {
	fl, server, err := f.connect(f.decide(vip, c.RemoteAddr().(*net.TCPAddr).AddrPort()))
	if err != nil {
		reset(c)
		f.Log.Debug("reset a connection", slog.Any("listener", vip), slog.Any("client", c.RemoteAddr()), slog.Any("err", err))
		return
	}
	fl.end = func() {
		reset(c)
		reset(server)
	}
	f.begin(fl)
	relay(c, server)
	f.flows.finish(fl)
}

// connect connects to one endpoint after the other until one accepts. Where the Service wants that, each but the last
// has as long as in the kernel, see model.ServicePort.RetryAfter.
func (f *Forwarder) connect(d model.Decision) (*flow, *net.TCPConn, error) {
	if d.Verdict != model.Forwarded {
		return nil, nil, errors.New(d.Verdict.String())
	}
	var tried []netip.AddrPort
	err := errors.New("no endpoint is left")
	for len(tried) < f.limits.tries {
		endpoint, ok := f.choose(d, tried)
		if !ok {
			break
		}
		try := f.limits.try
		if after := d.Port.RetryAfter; after > 0 && len(tried)+1 < min(len(d.Targets), f.limits.tries) {
			try = min(try, after)
		}
		ctx, cancel := context.WithTimeout(f.ctx, try)
		var to net.Conn
		to, err = f.sockets.DialContext(ctx, "tcp", endpoint.String())
		cancel()
		if err == nil {
			return &flow{Decision: d, endpoint: endpoint}, to.(*net.TCPConn), nil
		}
		tried = append(tried, endpoint)
	}
	f.flows.count(d.Port, func(c *Count) { c.Refused++ })
	return nil, nil, fmt.Errorf("connect to any of %d endpoints, the last error: %w", len(tried), err)
}

// relay copies in both directions until both have ended, and closes both connections: by a reset if a
// direction was cut off, so that its receiver does not take the data for complete.
func relay(client, server *net.TCPConn) {
	toServer := make(chan error, 1)
	go func() { toServer <- copyTo(server, client) }()
	if err := errors.Join(copyTo(client, server), <-toServer); err != nil {
		reset(client)
		reset(server)
		return
	}
	_ = client.Close() // nothing can be done about it
	_ = server.Close()
}

// copyTo copies to the end, and passes that on. If the sender is gone, the receiver gets a reset, which ends
// the other direction. If the receiver is gone, the other direction ends by itself, once what the receiver
// had sent before has passed.
func copyTo(to, from *net.TCPConn) error {
	_, err := io.Copy(to, from)
	if err == nil {
		return to.CloseWrite()
	}
	if isGone(from) {
		reset(to)
	}
	return err
}

// isGone reports whether a connection has ended as a whole.
func isGone(c *net.TCPConn) bool {
	const tcpClose = 7 // of enum in include/net/tcp_states.h
	gone := true       // if it is closed
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			gone = err != nil || info.State == tcpClose
		})
	}
	return gone
}

// reset closes a connection so that the peer gets an error instead of an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close() // nothing can be done about it
}
