package userspace

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
	at      *entry
	socket  *net.UDPConn
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

func newUDPListener(e *env, at *entry) (*udpListener, error) {
	socket, err := e.open.listenUDP(e.ctx, netip.AddrPortFrom(at.vip.Addr, at.vip.Port))
	if err != nil {
		return nil, err
	}
	if raw, err := socket.SyscallConn(); err == nil {
		tellInterface(raw, at.vip.Addr, false)
	}
	l := &udpListener{
		env: e, at: at, socket: socket, start: time.Now(),
		sessions: map[netip.AddrPort]*session{},
		refusing: map[netip.AddrPort]time.Time{},
	}
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	l.loop.Go(l.receive)
	return l, nil
}

// changed ends the sessions whose endpoint is gone: the client's next datagram
// opens one to another endpoint.
func (l *udpListener) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		if !l.has(l.at, s.endpoint) {
			l.endLocked(s)
		}
	}
	// An endpoint that comes back is a new one.
	maps.DeleteFunc(l.refusing, func(e netip.AddrPort, _ time.Time) bool { return !l.has(l.at, e) })
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
		err := awaitReadable(raw)
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
	var control [128]byte
	n, m, _, client, err := l.socket.ReadMsgUDPAddrPort(buffer[:], control[:])
	if err != nil {
		return err
	}
	if err := l.forward(client, control[:m], buffer[:n]); err != nil {
		l.log.LogAttrs(l.ctx, slog.LevelDebug, "lost a datagram",
			slog.Any("listener", l.socket.LocalAddr()), slog.Any("client", client), slog.Any("err", err))
	}
	return nil
}

// forward sends a datagram to the client's endpoint. The refusal of an earlier datagram may
// arrive only now: then this one is sent to another endpoint.
func (l *udpListener) forward(client netip.AddrPort, control, datagram []byte) error {
	var err error
	for range maxTries {
		var s *session
		if s, err = l.sessionOf(client, control); errors.As(err, new(verdictError)) {
			return err
		}
		if err != nil {
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

// sessionOf returns the client's session, a new one if it has none. control came with the datagram.
func (l *udpListener) sessionOf(client netip.AddrPort, control []byte) (*session, error) {
	l.mu.Lock()
	s, ok := l.sessions[client]
	l.mu.Unlock()
	if ok {
		return s, nil
	}
	iface := ""
	if l.byDevice.Load() {
		iface = interfaceIn(control)
	}
	d := l.decide(l.at, client, iface)
	l.counts.decided(d.Decision)
	if d.Verdict != model.Forwarded {
		d.owner.refuse(d.Verdict)
		return nil, verdictError(d.Verdict)
	}
	endpoint, ok := l.chooseFor(d)
	if !ok {
		d.owner.failed.Add(1)
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
	d.owner.chooser.remember(d.client, d.TrafficPolicy, endpoint)
	l.counts.accepted[l.at.family()].Add(1)
	d.owner.forwarded.Add(1)
	s = &session{client: client, endpoint: endpoint, conn: conn}
	l.begin(s)
	return s, nil
}

// begin adds a session.
func (l *udpListener) begin(s *session) {
	l.use(s)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts.sessions.Add(1) > int64(l.limits.allUDP) || len(l.sessions) >= l.limits.clients {
		l.endLongestIdleLocked()
	}
	l.sessions[s.client] = s
	l.replies.Go(func() { l.returnReplies(s) })
	if !l.has(l.at, s.endpoint) {
		l.endLocked(s) // it left before changed could see the session
	}
}

// verdictError is the error of a datagram that is not forwarded.
type verdictError model.Verdict

func (e verdictError) Error() string { return model.Verdict(e).String() }

func (l *udpListener) endLongestIdleLocked() {
	if len(l.sessions) > 0 {
		l.endLocked(l.sessions[oldest(l.sessions, func(s *session) int64 { return s.used.Load() })])
	}
}

// chooseFor returns an endpoint that has not refused lately; if all have, any of them.
func (l *udpListener) chooseFor(d decision) (netip.AddrPort, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.refusing, func(_ netip.AddrPort, at time.Time) bool { return time.Since(at) >= l.limits.idle })
	if e, ok := l.choose(d, slices.Collect(maps.Keys(l.refusing))); ok {
		return e, true
	}
	clear(l.refusing)
	return l.choose(d, nil)
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
	if l.has(l.at, endpoint) {
		l.refusing[endpoint] = time.Now()
	}
}

// endLocked ends a session, which may have ended already. l.mu is held.
func (l *udpListener) endLocked(s *session) {
	if l.sessions[s.client] == s {
		delete(l.sessions, s.client)
		l.counts.sessions.Add(-1)
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
		if err := awaitReadable(raw); err != nil {
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
