package userspace

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// rig is a Forwarder on this machine's loopback, whose endpoints have the addresses of
// pods and are servers on loopback. The test does what Run does.
type rig struct {
	*testing.T
	*Forwarder
	builder *model.Builder
	told    []string // what Options.Failed got, since failures was called

	mu      sync.Mutex
	servers map[netip.AddrPort]netip.AddrPort // by endpoint
	listens int                               // how often it was tried to listen
	dials   int
}

// newRig returns a rig with both families switched on. When the test ends, the Forwarder
// is closed, and all goroutines that came with it must be gone.
func newRig(t *testing.T) *rig {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &rig{T: t, builder: modeltest.Builder(config(true)), servers: map[netip.AddrPort]netip.AddrPort{}}
	r.Forwarder = New(Options{
		Scope:  Loopback,
		Log:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Failed: func(s model.NamespacedName, err error) { r.told = append(r.told, fmt.Sprintf("%v: %v", s, err)) },
	})
	modeltest.OurNode().Set(r.builder)
	r.watch()
	t.Cleanup(func() {
		r.stop()
		if !eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before }) {
			t.Logf("goroutines, %d before: %s", before, goroutines())
		}
	})
	return r
}

// anyPort makes a Forwarder listen on whatever ports are free, for tests with node ports
// that may be taken.
func anyPort(f *Forwarder) {
	open := f.open
	f.open.listenTCP = func(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
		return open.listenTCP(ctx, netip.AddrPortFrom(at.Addr(), 0))
	}
	f.open.listenUDP = func(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
		return open.listenUDP(ctx, netip.AddrPortFrom(at.Addr(), 0))
	}
}

func goroutines() string {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
	return all.String()
}

func config(localhost bool) model.Config {
	c := modeltest.Config()
	c.NodePortAddresses.Localhost = [...]bool{localhost, localhost}
	return c
}

// watch counts what is opened, and sends connections to endpoints to their servers.
func (r *rig) watch() {
	open := r.open
	r.open.listenTCP = func(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
		r.count(&r.listens)
		return open.listenTCP(ctx, at)
	}
	r.open.listenUDP = func(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
		r.count(&r.listens)
		return open.listenUDP(ctx, at)
	}
	r.open.dialTCP = func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
		r.count(&r.dials)
		return open.dialTCP(ctx, r.server(to))
	}
	r.open.dialUDP = func(ctx context.Context, to netip.AddrPort) (*net.UDPConn, error) {
		r.count(&r.dials)
		return open.dialUDP(ctx, r.server(to))
	}
}

func (r *rig) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// opened returns how often something was opened since the last call.
func (r *rig) opened() (listens, dials int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	listens, dials = r.listens, r.dials
	r.listens, r.dials = 0, 0
	return listens, dials
}

func (r *rig) server(endpoint netip.AddrPort) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.servers[endpoint]
	if !ok {
		r.Errorf("a connection to %v, which is no endpoint", endpoint)
	}
	return at
}

// pod makes a server the n-th pod, and returns the pod's address.
func (r *rig) pod(n int, server netip.AddrPort) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := modeltest.Pod(model.FamilyOf(server.Addr()), n)
	r.servers[netip.AddrPortFrom(pod, 8080)] = server
	return pod.String()
}

// set sets objects and applies the snapshot.
func (r *rig) set(objects ...modeltest.Object) {
	r.Helper()
	for _, o := range objects {
		o.Set(r.builder)
	}
	r.apply()
}

// apply has all ports opened that are wanted.
func (r *rig) apply() {
	r.Helper()
	if err := r.follow(r.builder.Snapshot()); err != nil {
		r.Fatal(err)
	}
	if len(r.missing) > 0 {
		r.Fatalf("%d ports can't be opened: %v", len(r.missing), r.failures())
	}
}

// failures returns what Options.Failed got since the last call.
func (r *rig) failures() []string {
	told := r.told
	r.told = nil
	return told
}

// stop does what the end of Run does.
func (r *rig) stop() {
	r.close()
}

// running has a Forwarder run until the test ends, or stop is called.
func running(t testing.TB, f *Forwarder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { f.Run(ctx) })
	stop = func() {
		cancel()
		run.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// web is a Service with both families and one port that is also a node port.
func web(protocol string, nodePort uint16) modeltest.Service {
	return modeltest.NewService("ns1/web").Typed("NodePort").On("172.30.0.41", "fd00:172:30::41").
		Port(model.Port{Name: "http", Protocol: protocol, Port: 80}).NodePort(int32(nodePort))
}

// slice is the Service's slice of endpoints of one family.
func slice(f model.Family, protocol string, pods ...string) modeltest.Slice {
	s := modeltest.NewSlice(fmt.Sprintf("ns1/web-%v", f == model.IPv6), "web").Port("http", protocol, 8080)
	if f == model.IPv6 {
		s = s.IPv6()
	}
	return s.Ready(pods...)
}

// inBothFamilies runs a test for each family that this machine has.
func inBothFamilies(t *testing.T, test func(t *testing.T, f model.Family)) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			l, err := net.Listen("tcp", netip.AddrPortFrom(f.Loopback(), 0).String())
			if err != nil {
				if f == model.IPv6 {
					t.Skipf("this machine has no ::1: %v", err)
				}
				t.Fatal(err)
			}
			hangUp(l)
			test(t, f)
		})
	}
}

// freePort returns a port that is free for TCP and UDP on every loopback address. It is
// none of those that the kernel gives to clients.
func freePort(t testing.TB) uint16 {
	t.Helper()
	for range 1000 {
		port := uint16(30000 + mathrand.IntN(2768))
		if isFree(port) {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func isFree(port uint16) bool {
	for _, f := range model.Families {
		at := netip.AddrPortFrom(f.Loopback(), port).String()
		l, err := net.Listen("tcp", at)
		if errors.Is(err, syscall.EADDRINUSE) {
			return false
		}
		if err == nil {
			hangUp(l)
		}
		c, err := net.ListenPacket("udp", at)
		if errors.Is(err, syscall.EADDRINUSE) {
			return false
		}
		if err == nil {
			hangUp(c)
		}
	}
	return true
}

// hangUp closes something where the error does not matter.
func hangUp(c io.Closer) { c.Close() }

func nodePort(f model.Family, port uint16) string {
	return netip.AddrPortFrom(f.Loopback(), port).String()
}

// eventually waits for something that nothing announces.
func eventually(t testing.TB, what string, happened func() bool) bool {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("not within %v: %s", patience, what)
			return false
		}
	}
	return true
}

// within gives a connection's test an end.
func within[C interface{ SetDeadline(time.Time) error }](t *testing.T, c C) C {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// tcpServer serves each connection with handle until the test ends.
func tcpServer(t testing.TB, f model.Family, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.Loopback(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { hangUp(c) })
			all.Go(func() {
				defer stop()
				defer hangUp(c)
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		hangUp(l)
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// echo says its name, one byte, and then what it hears; its end after the client's.
func echo(name byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		if _, err := c.Write([]byte{name}); err == nil {
			_, _ = io.Copy(c, c)
		}
	}
}

// dialTCP connects to a node port.
func dialTCP(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return within(t, c.(*net.TCPConn))
}

// who connects to an echo and returns its name, and the connection.
func who(t *testing.T, at string) (byte, *net.TCPConn) {
	t.Helper()
	c := dialTCP(t, at)
	var name [1]byte
	if _, err := io.ReadFull(c, name[:]); err != nil {
		t.Fatalf("read a name: %v", err)
	}
	return name[0], c
}

// whoOnce is who for a connection that is not needed.
func whoOnce(t *testing.T, at string) byte {
	t.Helper()
	name, c := who(t, at)
	hangUp(c)
	return name
}

func mustBeRefused(t *testing.T, at string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, patience)
	if err == nil {
		hangUp(c)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s: want it refused, got %v", at, err)
	}
}

// mustBeReset fails if a connection is not accepted and then reset, maybe so soon that
// the client sees nothing of the former.
func mustBeReset(t *testing.T, at string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, patience)
	if err == nil {
		_, err = io.Copy(io.Discard, within(t, c))
		hangUp(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connect to %s: want a reset, got %v", at, err)
	}
}

// mustEcho fails if what is sent does not come back.
func mustEcho(t *testing.T, c *net.TCPConn) {
	t.Helper()
	sent := rand.Text()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		t.Fatalf("want %q back, got %q, %v", sent, got, err)
	}
}

// refusingTCP is an address that refuses connections, and stays free.
func refusingTCP(t *testing.T, f model.Family) netip.AddrPort {
	t.Helper()
	// A client's port, held by a connection to a server, has no listener.
	server := tcpServer(t, f, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	c := dialTCP(t, server.String())
	return c.LocalAddr().(*net.TCPAddr).AddrPort()
}

// udpServer answers each datagram with its name, one byte, and the datagram.
func udpServer(t testing.TB, f model.Family, name byte) netip.AddrPort {
	t.Helper()
	return udpServing(t, f, func(c *net.UDPConn, datagram []byte, client netip.AddrPort) {
		_, _ = c.WriteToUDPAddrPort(append([]byte{name}, datagram...), client)
	})
}

// udpServing handles each datagram, one after the other, until the test ends.
func udpServing(t testing.TB, f model.Family, handle func(c *net.UDPConn, datagram []byte, client netip.AddrPort)) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(f.Loopback(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	var loop sync.WaitGroup
	loop.Go(func() {
		buffer := make([]byte, maxDatagram)
		for {
			n, client, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			handle(c, buffer[:n], client)
		}
	})
	t.Cleanup(func() {
		hangUp(c)
		loop.Wait()
	})
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// refusingUDP is an address that refuses datagrams, and stays free: a socket that is
// connected elsewhere has its port.
func refusingUDP(t *testing.T, f model.Family) netip.AddrPort {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(udpServer(t, f, '-')))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func dialUDP(t *testing.T, at string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return within(t, c.(*net.UDPConn))
}

// ask sends a datagram and returns who answers.
func ask(t *testing.T, c *net.UDPConn, datagram string) byte {
	t.Helper()
	if _, err := io.WriteString(c, datagram); err != nil {
		t.Fatal(err)
	}
	return answer(t, c, datagram)
}

func answer(t *testing.T, c *net.UDPConn, datagram string) byte {
	t.Helper()
	buffer := make([]byte, maxDatagram)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatalf("wait for an answer: %v", err)
	}
	if got := string(buffer[1:n]); got != datagram {
		t.Fatalf("want %d bytes back, got %d others", len(datagram), len(got))
	}
	return buffer[0]
}
