package localhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// maxDatagram is larger than any datagram.
const maxDatagram = 1 << 16

// maxTries is the number of endpoints that a datagram is sent to before it is lost, as
// datagrams may be.
const maxTries = 3

// udpListener receives datagrams on one address. Each client has a session.
type udpListener struct {
	*env
	socket  *net.UDPConn
	chooser *chooser
	start   time.Time // session.used is relative to it
	ctx     context.Context
	cancel  context.CancelFunc
	loop    sync.WaitGroup // receives from clients, and opens sessions
	replies sync.WaitGroup // receive from endpoints, one for each session

	mu       sync.Mutex
	sessions map[netip.AddrPort]*session
	refusing map[netip.AddrPort]time.Time // endpoints that refused a datagram, and when
}

// session is the flow between a client and an endpoint.
type session struct {
	client, endpoint netip.AddrPort
	conn             *net.UDPConn // to the endpoint
	used             atomic.Int64 // time of the last datagram, in ns since udpListener.start
}

func newUDPListener(e *env, at netip.AddrPort, c *chooser) (*udpListener, error) {
	socket, err := e.open.listenUDP(e.ctx, at)
	if err != nil {
		return nil, err
	}
	l := &udpListener{
		env: e, socket: socket, chooser: c, start: time.Now(),
		sessions: map[netip.AddrPort]*session{},
		refusing: map[netip.AddrPort]time.Time{},
	}
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	l.loop.Go(l.receive)
	return l, nil
}

// endpointsChanged ends the sessions whose endpoint is gone: the client's next datagram
// opens one to another endpoint.
func (l *udpListener) endpointsChanged() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if !l.chooser.has(s.endpoint) {
			l.endLocked(s)
		}
	}
	// An endpoint that comes back is a new one.
	maps.DeleteFunc(l.refusing, func(e netip.AddrPort, _ time.Time) bool { return !l.chooser.has(e) })
}

func (l *udpListener) close() {
	l.cancel()
	_ = l.socket.Close()
	l.loop.Wait() // from here on there is no new session
	l.mu.Lock()
	for _, s := range l.sessions {
		l.endLocked(s)
	}
	l.mu.Unlock()
	l.replies.Wait()
}

// receive forwards datagrams from clients.
func (l *udpListener) receive() {
	raw, _ := l.socket.SyscallConn() // fails only without a socket
	var pause backoff
	for {
		err := awaitDatagram(raw)
		if err == nil {
			err = l.receiveOne()
		}
		if err == nil {
			pause = backoff{}
			continue
		}
		if !pause.after(l.ctx, l.log, l.socket.LocalAddr(), err) {
			return
		}
	}
}

func (l *udpListener) receiveOne() error {
	buffer := l.buffers.Get().(*[maxDatagram]byte)
	defer l.buffers.Put(buffer)
	n, client, err := l.socket.ReadFromUDPAddrPort(buffer[:])
	if err != nil {
		return err
	}
	if err := l.forward(client, buffer[:n]); err != nil {
		l.log.LogAttrs(l.ctx, slog.LevelDebug, "lost a datagram to a node port on loopback",
			slog.Any("listener", l.socket.LocalAddr()), slog.Any("client", client), slog.Any("err", err))
	}
	return nil
}

// forward sends a datagram to the client's endpoint. The refusal of an earlier datagram may
// arrive only now: then this one is sent to another endpoint.
func (l *udpListener) forward(client netip.AddrPort, datagram []byte) error {
	var err error
	for range maxTries {
		var s *session
		if s, err = l.sessionOf(client); err != nil {
			continue
		}
		if _, err = s.conn.Write(datagram); err == nil {
			l.use(s)
			return nil
		}
		if errors.Is(err, unix.EMSGSIZE) {
			return fmt.Errorf("send %d bytes to %v: %w", len(datagram), s.endpoint, cause(err))
		}
		l.broken(s, err)
		err = fmt.Errorf("send to %v: %w", s.endpoint, cause(err))
	}
	return err
}

// sessionOf returns the client's session, a new one if it has none.
func (l *udpListener) sessionOf(client netip.AddrPort) (*session, error) {
	l.mu.Lock()
	s, ok := l.sessions[client]
	l.mu.Unlock()
	if ok {
		return s, nil
	}
	endpoint, ok := l.choose(client.Addr())
	if !ok {
		return nil, errors.New("no endpoint is left")
	}
	conn, err := l.open.dialUDP(l.ctx, endpoint)
	if err != nil {
		if !ours(err) {
			l.mu.Lock()
			l.avoidLocked(endpoint)
			l.mu.Unlock()
		}
		return nil, fmt.Errorf("open a socket to %v: %w", endpoint, err)
	}
	l.chooser.remember(client.Addr(), endpoint)
	l.counts.accepted[model.FamilyOf(client.Addr().Unmap())].Add(1)
	s = &session{client: client, endpoint: endpoint, conn: conn}
	l.begin(s)
	return s, nil
}

// begin adds a session.
func (l *udpListener) begin(s *session) {
	l.use(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) >= l.limits.clients {
		longestIdle := oldest(l.sessions, func(s *session) int64 { return s.used.Load() })
		l.endLocked(l.sessions[longestIdle])
	}
	l.sessions[s.client] = s
	l.replies.Go(func() { l.returnReplies(s) })
	if !l.chooser.has(s.endpoint) {
		l.endLocked(s) // it left before endpointsChanged could see the session
	}
}

// choose returns an endpoint that has not refused lately; if all have, any of them.
func (l *udpListener) choose(client netip.Addr) (netip.AddrPort, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.refusing, func(_ netip.AddrPort, at time.Time) bool { return time.Since(at) >= l.limits.idle })
	if e, ok := l.chooser.choose(client, slices.Collect(maps.Keys(l.refusing))); ok {
		return e, true
	}
	clear(l.refusing)
	return l.chooser.choose(client, nil)
}

// broken ends a session whose socket reported an error. If its socket is closed, it has
// ended already.
func (l *udpListener) broken(s *session, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(err, net.ErrClosed) {
		l.avoidLocked(s.endpoint)
	}
	l.endLocked(s)
}

// avoidLocked keeps an endpoint from being chosen for as long as a session may be idle: a
// client that sends now and then must not get the same dead endpoint each time. l.mu is held.
func (l *udpListener) avoidLocked(endpoint netip.AddrPort) {
	if l.chooser.has(endpoint) {
		l.refusing[endpoint] = time.Now()
	}
}

// endLocked ends a session, which may have ended already. l.mu is held.
func (l *udpListener) endLocked(s *session) {
	if l.sessions[s.client] == s {
		delete(l.sessions, s.client)
	}
	_ = s.conn.Close()
}

// use notes that a datagram passed.
func (l *udpListener) use(s *session) { s.used.Store(int64(time.Since(l.start))) }

// idleAt returns the time at which a session ends unless another datagram passes.
func (l *udpListener) idleAt(s *session) time.Time {
	return l.start.Add(time.Duration(s.used.Load()) + l.limits.idle)
}

// returnReplies sends the endpoint's datagrams to the client until the session ends.
func (l *udpListener) returnReplies(s *session) {
	raw, _ := s.conn.SyscallConn() // fails only without a socket
	for {
		_ = s.conn.SetReadDeadline(l.idleAt(s)) // fails only if it is closed
		err := l.returnUntilDeadline(s, raw)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			l.broken(s, err)
			return
		}
		if !time.Now().Before(l.idleAt(s)) {
			l.mu.Lock()
			l.endLocked(s)
			l.mu.Unlock()
			return
		}
	}
}

// returnUntilDeadline ends with an error, for instance when the endpoint's port is closed.
func (l *udpListener) returnUntilDeadline(s *session, raw syscall.RawConn) error {
	for {
		if err := awaitDatagram(raw); err != nil {
			return err
		}
		if err := l.returnOne(s); err != nil {
			return err
		}
	}
}

func (l *udpListener) returnOne(s *session) error {
	buffer := l.buffers.Get().(*[maxDatagram]byte)
	defer l.buffers.Put(buffer)
	n, err := s.conn.Read(buffer[:])
	if err != nil {
		return err
	}
	l.use(s)
	// The client may be gone, and a datagram may be lost.
	_, _ = l.socket.WriteToUDPAddrPort(buffer[:n], s.client)
	return nil
}
