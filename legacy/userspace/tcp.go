package userspace

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// pause is the time to wait after an error of a listener's socket that passes, such as too many open files.
const pause = 100 * time.Millisecond

// serveTCP accepts connections on one address until the listener is closed. Without a slot, of the listener and of all,
// one client waits here, and further ones in the kernel's queue.
func (f *Forwarder) serveTCP(vip model.VIP, l *net.TCPListener) {
	own := make(chan struct{}, f.limits.each)
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(pause)
			continue
		}
		for _, slots := range [...]chan struct{}{own, f.slots} {
			select {
			case slots <- struct{}{}:
			case <-f.ctx.Done():
				reset(c)
				return
			}
		}
		f.accepted[model.FamilyOf(vip.Addr)].Add(1)
		f.tasks.Go(func() {
			f.forward(vip, c)
			<-own
			<-f.slots
		})
	}
}

// forward forwards one connection until it ends. It outlives the listener.
func (f *Forwarder) forward(vip model.VIP, c *net.TCPConn) {
	fl, err := f.connect(vip, c.RemoteAddr().(*net.TCPAddr).AddrPort())
	if err != nil {
		reset(c)
		f.Log.Debug("reset a connection", slog.Any("listener", vip), slog.Any("client", c.RemoteAddr()), slog.Any("err", err))
		return
	}
	fl.client = c
	f.hold(fl, func() { relay(c, fl.server.(*net.TCPConn)) })
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

// reset closes a connection, of TCP so that the peer gets an error instead of an end.
func reset(c net.Conn) {
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = c.Close() // nothing can be done about it
}
