package userspace

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// maxDatagram is larger than any datagram.
const maxDatagram = 1 << 16

// udpListener receives datagrams on one address. Each client has a session.
type udpListener struct {
	*Forwarder
	vip    model.VIP
	socket *net.UDPConn

	mu       sync.Mutex // locked before Forwarder.mu
	sessions map[netip.AddrPort]*session
}

// session is the flow between a client and an endpoint.
type session struct {
	*flow
	client netip.AddrPort
	conn   *net.UDPConn // to the endpoint
}

// serve serves until the socket is closed. The sessions end with their flows.
func (l *udpListener) serve() {
	for !errors.Is(l.pass(l.socket, l.send), net.ErrClosed) {
		time.Sleep(pause)
	}
}

// pass hands over each datagram that a socket receives, until there is an error. Thousands of sockets may wait,
// and none needs a buffer meanwhile.
func (f *Forwarder) pass(from *net.UDPConn, to func(sender netip.AddrPort, datagram []byte)) error {
	raw, err := from.SyscallConn()
	for err == nil {
		err = raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n != 0 || err != nil // reading shows which
		})
		if err != nil {
			break
		}
		buffer := f.buffers.Get().(*[maxDatagram]byte)
		var n int
		var sender netip.AddrPort
		if n, sender, err = from.ReadFromUDPAddrPort(buffer[:]); err == nil {
			to(sender, buffer[:n])
		}
		f.buffers.Put(buffer)
	}
	return err
}

// send sends a client's datagram to its endpoint. The refusal of an earlier datagram may arrive only now: then
// this one is lost, as datagrams may be, and the next one begins another session.
func (l *udpListener) send(client netip.AddrPort, datagram []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.sessions[client], net.ErrClosed
	if s != nil {
		_, err = s.conn.Write(datagram)
	}
	if errors.Is(err, net.ErrClosed) { // there is none, or its endpoint has just left
		if s, err = l.open(client); err == nil {
			_, err = s.conn.Write(datagram)
		}
	}
	switch {
	case err == nil:
		l.use(s)
		return
	case s != nil && !errors.Is(err, unix.EMSGSIZE):
		l.drop(s)
	}
	l.Log.Debug("lost a datagram", slog.Any("listener", l.vip), slog.Any("client", client), slog.Any("err", err))
}

// open opens a session. At the limit, it takes the place of any other. l.mu is held.
func (l *udpListener) open(client netip.AddrPort) (*session, error) {
	fl, c, err := l.connect(l.vip, client)
	if err != nil {
		return nil, err
	}
	if old := l.sessions[client]; old != nil {
		l.drop(old)
	}
	for _, other := range l.sessions {
		if int(l.clients.Load()) < l.limits.clients {
			break
		}
		l.drop(other)
	}
	s := &session{flow: fl, client: client, conn: c.(*net.UDPConn)}
	s.end = func() { _ = s.conn.Close() }
	l.sessions[client] = s
	l.clients.Add(1)
	l.accepted[model.FamilyOf(l.vip.Addr)].Add(1)
	l.begin(fl)
	l.tasks.Go(func() { l.answer(s) })
	return s, nil
}

// answer sends the endpoint's datagrams to the client until the session ends, for instance when the endpoint's
// port is closed, or when it is idle.
func (l *udpListener) answer(s *session) {
	_ = l.pass(s.conn, func(_ netip.AddrPort, datagram []byte) {
		l.use(s)
		_, _ = l.socket.WriteToUDPAddrPort(datagram, s.client) // the client may be gone, and a datagram may be lost
	})
	l.mu.Lock()
	l.drop(s)
	l.mu.Unlock()
	l.finish(s.flow)
}

// use notes that a datagram passed: the session may be idle for a while again.
func (l *udpListener) use(s *session) {
	_ = s.conn.SetReadDeadline(time.Now().Add(l.limits.idle)) // fails only if it is closed
}

// drop ends a session, which may have ended already. l.mu is held.
func (l *udpListener) drop(s *session) {
	s.end()
	if l.sessions[s.client] == s {
		delete(l.sessions, s.client)
		l.clients.Add(-1)
	}
}
