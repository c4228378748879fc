package userspace

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// rig is a Forwarder on this machine's loopback, whose endpoints have the addresses of
// pods and are servers on loopback. The test does what Run does.
type rig struct {
	*testing.T
	*Forwarder
	builder *model.Builder
	net     *network
	told    []string // what Options.Failed got, since failures was called
}

// network is this machine's loopback: endpoints are servers there.
type network struct {
	*testing.T
	net.ListenConfig
	net.Dialer
	anyPort bool // listeners are on free ports of loopback

	mu      sync.Mutex
	servers map[string]netip.AddrPort // by endpoint
	at      map[string]string         // where the listeners are, by place
	listens int                       // how often it was tried to listen
	dials   int
}

func (n *network) Listen(ctx context.Context, name, at string) (net.Listener, error) {
	l, err := n.ListenConfig.Listen(ctx, name, n.listening(at))
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.at[at] = l.Addr().String()
	}
	return l, err
}

func (n *network) ListenPacket(ctx context.Context, name, at string) (net.PacketConn, error) {
	return n.ListenConfig.ListenPacket(ctx, name, n.listening(at))
}

func (n *network) listening(at string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listens++
	if n.anyPort {
		at = netip.AddrPortFrom(model.FamilyOf(netip.MustParseAddrPort(at).Addr()).Loopback(), 0).String()
	}
	return at
}

func (n *network) DialContext(ctx context.Context, name, to string) (net.Conn, error) {
	n.mu.Lock()
	n.dials++
	at, ok := n.servers[to]
	n.mu.Unlock()
	switch {
	case !ok:
		n.Errorf("a connection to %s, which is no endpoint", to)
	case at == silent:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return n.Dialer.DialContext(ctx, name, at.String())
}

// silent is a server that answers nothing at all, as if its node were gone.
var silent = netip.AddrPortFrom(model.IPv4.Loopback(), 0)

// newRig returns a rig with both families switched on. When the test ends, the Forwarder
// is closed, and all goroutines that came with it must be gone.
func newRig(t *testing.T) *rig {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &rig{T: t, builder: modeltest.Builder(config(true)), net: &network{T: t, servers: map[string]netip.AddrPort{}, at: map[string]string{}}}
	r.Forwarder = New(Options{
		Loopback: true,
		Log:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Failed:   func(s model.NamespacedName, err error) { r.told = append(r.told, fmt.Sprintf("%v: %v", s, err)) },
	})
	r.sockets = r.net
	modeltest.OurNode().Set(r.builder)
	t.Cleanup(func() {
		r.end()
		r.serve(nil)
		r.tasks.Wait()
		testaid.WaitUntil(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
	return r
}

func config(localhost bool) model.Config {
	c := modeltest.Config()
	c.NodePortAddresses.Localhost = [...]bool{localhost, localhost}
	return c
}

// opened returns how often something was opened since the last call.
func (r *rig) opened() (listens, dials int) {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	listens, dials = r.net.listens, r.net.dials
	r.net.listens, r.net.dials = 0, 0
	return listens, dials
}

// pod makes a server the n-th pod, and returns the pod's address.
func (r *rig) pod(n int, server netip.AddrPort) string {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	pod := modeltest.Pod(model.FamilyOf(server.Addr()), n)
	r.net.servers[netip.AddrPortFrom(pod, 8080).String()] = server
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
	if err := r.Apply(r.Context(), r.builder.Snapshot()); err != nil {
		r.Fatal(err)
	}
	for _, f := range model.Families {
		if missing, _ := r.Compare(r.Context(), f, nil, nil); len(missing) > 0 {
			r.Fatalf("%d ports can't be opened: %v, %v", len(missing), missing, r.failures())
		}
	}
}

// failures returns what Options.Failed got since the last call.
func (r *rig) failures() []string {
	told := r.told
	r.told = nil
	return told
}

// web is a Service with both families and one port that is also a node port.
func web(protocol string, nodePort uint16) modeltest.Service {
	return modeltest.NewService("ns1/web").Typed("NodePort").On("172.30.0.41", "fd00:172:30::41").
		Port(model.Port{Name: "http", Protocol: protocol, Port: 80}).NodePort(int32(nodePort))
}

// slice is the Service's slice of endpoints of IPv4.
func slice(protocol string, pods ...string) modeltest.Slice {
	return modeltest.NewSlice("ns1/web-1", "web").Port("http", protocol, 8080).Ready(pods...)
}

// hangUp closes something where the error does not matter.
func hangUp(c io.Closer) { c.Close() }

func nodePort(port uint16) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// within gives a connection's test an end.
func within[C interface{ SetDeadline(time.Time) error }](t *testing.T, c C) C {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}
