package userspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
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
	tasks  sync.WaitGroup // one receives from clients, and one for each session from its endpoint

	mu      sync.Mutex
	clients map[netip.AddrPort]*session
	refused map[netip.AddrPort]time.Time // endpoints that refused a datagram, and when
}

// session is the flow between a client and an endpoint.
type session struct {
	flow
	client netip.AddrPort
	conn   *net.UDPConn // to the endpoint
	used   time.Time    // when a datagram passed
}

func (f *Forwarder) serveUDP(vip model.VIP, socket *net.UDPConn) (closed func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	l := &udpListener{
		Forwarder: f, vip: vip, socket: socket,
		clients: map[netip.AddrPort]*session{}, refused: map[netip.AddrPort]time.Time{},
	}
	l.tasks.Go(func() {
		for ctx.Err() == nil {
			_ = l.pass(socket, l.send) // its errors pass, but for the end
			pause(ctx)
		}
	})
	return func() {
		cancel()
		_ = socket.Close()
		l.mu.Lock()
		for _, s := range l.clients {
			s.end()
		}
		l.mu.Unlock()
		l.tasks.Wait()
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
// this one is lost, as datagrams may be, and the next one goes to another endpoint.
func (l *udpListener) send(client netip.AddrPort, datagram []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.clients[client], error(nil)
	if s != nil {
		l.use(s)
		_, err = s.conn.Write(datagram)
	}
	if s == nil || errors.Is(err, net.ErrClosed) { // its endpoint has just left
		if s, err = l.open(client); err == nil {
			_, err = s.conn.Write(datagram)
		}
	}
	if err != nil {
		l.Log.Debug("lost a datagram", slog.Any("listener", l.vip), slog.Any("client", client), slog.Any("err", err))
	}
	if s != nil && err != nil && !errors.Is(err, unix.EMSGSIZE) {
		l.close(s, err)
	}
}

// open opens a session. At the limit, it takes the place of the longest idle. l.mu is held.
func (l *udpListener) open(client netip.AddrPort) (*session, error) {
	d := l.decide(l.vip, client)
	if d.Verdict != model.Forwarded {
		return nil, errors.New(d.Verdict.String())
	}
	maps.DeleteFunc(l.refused, func(_ netip.AddrPort, at time.Time) bool { return time.Since(at) >= l.limits.idle })
	endpoint, ok := l.choose(d, slices.Collect(maps.Keys(l.refused)))
	if !ok { // all have refused: any of them may be back
		clear(l.refused)
		endpoint, _ = l.choose(d, nil)
	}
	c, err := l.sockets.DialContext(l.ctx, "udp", endpoint.String())
	if err != nil {
		l.flows.count(d.Port, func(c *Count) { c.Refused++ })
		return nil, fmt.Errorf("open a socket to %v: %w", endpoint, err)
	}
	if n := len(l.clients); n >= l.limits.clients || n > 0 && int(l.udp.Load()) >= l.limits.allUDP {
		all := slices.Collect(maps.Values(l.clients))
		l.close(slices.MinFunc(all, func(a, b *session) int { return a.used.Compare(b.used) }), nil)
	}
	conn := c.(*net.UDPConn)
	s := &session{client: client, conn: conn, flow: flow{d, endpoint, func() { _ = conn.Close() }, nil}}
	l.clients[client] = s
	l.udp.Add(1)
	l.accepted[model.FamilyOf(l.vip.Addr)].Add(1)
	l.use(s)
	l.begin(&s.flow)
	l.tasks.Go(func() { l.answer(s) })
	return s, nil
}

// answer sends the endpoint's datagrams to the client until the session ends, for instance when the endpoint's
// port is closed, or when it is idle.
func (l *udpListener) answer(s *session) {
	err := l.pass(s.conn, func(_ netip.AddrPort, datagram []byte) {
		l.mu.Lock()
		l.use(s)
		l.mu.Unlock()
		_, _ = l.socket.WriteToUDPAddrPort(datagram, s.client) // the client may be gone, and a datagram may be lost
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(s, err)
	l.udp.Add(-1)
	l.flows.finish(&s.flow)
}

// use notes that a datagram passed: the session may be idle for a while again. l.mu is held.
func (l *udpListener) use(s *session) {
	s.used = time.Now()
	_ = s.conn.SetReadDeadline(s.used.Add(l.limits.idle)) // fails only if it is closed
}

// close ends a session, which may have ended already. An endpoint that refused is not chosen for some time: a
// client that asks again must not get the same dead endpoint each time. l.mu is held.
func (l *udpListener) close(s *session, err error) {
	if errors.Is(err, unix.ECONNREFUSED) {
		l.refused[s.endpoint] = time.Now()
	}
	if l.clients[s.client] == s {
		delete(l.clients, s.client)
	}
	s.end()
}
