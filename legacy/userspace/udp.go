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

// udpListener receives datagrams on one address.
type udpListener struct {
	*Forwarder
	vip     model.VIP
	socket  *net.UDPConn
	clients sync.Map // the *flow of each, by its netip.AddrPort
}

// serve serves until the socket is closed. The flows end when their endpoints leave, or are idle.
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
// this one is lost, as datagrams may be, and the next one begins another flow.
func (l *udpListener) send(client netip.AddrPort, datagram []byte) {
	had, _ := l.clients.Load(client)
	fl, ok := had.(*flow)
	err := net.ErrClosed
	if ok {
		_, err = fl.server.Write(datagram)
	}
	if errors.Is(err, net.ErrClosed) { // there is none, or its endpoint has just left
		if fl, err = l.open(client); err == nil {
			_, err = fl.server.Write(datagram)
		}
	}
	if err == nil {
		l.use(fl)
		return
	}
	if fl != nil && !errors.Is(err, unix.EMSGSIZE) {
		l.drop(client, fl)
	}
	l.Log.Debug("lost a datagram", slog.Any("listener", l.vip), slog.Any("client", client), slog.Any("err", err))
}

// open begins a flow. At the limit, it takes the place of any other.
func (l *udpListener) open(client netip.AddrPort) (*flow, error) {
	fl, err := l.connect(l.vip, client)
	if err != nil {
		return nil, err
	}
	if had, ok := l.clients.Load(client); ok {
		l.drop(client, had.(*flow))
	}
	if int(l.numClients.Load()) >= l.limits.clients {
		l.clients.Range(func(other, had any) bool {
			l.drop(other, had.(*flow))
			return false
		})
	}
	l.clients.Store(client, fl)
	l.numClients.Add(1)
	l.accepted[model.FamilyOf(l.vip.Addr)].Add(1)
	l.tasks.Go(func() { l.hold(fl, func() { l.answer(client, fl) }) })
	return fl, nil
}

// answer sends the endpoint's datagrams to the client until the flow ends, for instance when the endpoint's
// port is closed, or when it is idle.
func (l *udpListener) answer(client netip.AddrPort, fl *flow) {
	_ = l.pass(fl.server.(*net.UDPConn), func(_ netip.AddrPort, datagram []byte) {
		l.use(fl)
		_, _ = l.socket.WriteToUDPAddrPort(datagram, client) // the client may be gone, and a datagram may be lost
	})
	l.drop(client, fl)
}

// use notes that a datagram passed: the flow may be idle for a while again.
func (l *udpListener) use(fl *flow) {
	_ = fl.server.SetReadDeadline(time.Now().Add(l.limits.idle)) // fails only if it is closed
}

// drop ends a flow, which may have ended already.
func (l *udpListener) drop(client any, fl *flow) {
	fl.end()
	if l.clients.CompareAndDelete(client, fl) {
		l.numClients.Add(-1)
	}
}
