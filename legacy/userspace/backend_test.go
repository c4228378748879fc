package userspace

import (
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// fakeDevice is a device in memory.
type fakeDevice struct {
	addrs map[netip.Addr]bool
	err   error
}

func (d *fakeDevice) Set(addrs map[netip.Addr]bool) error {
	d.addrs = maps.Clone(addrs)
	return d.err
}

// newBackend returns a rig that serves everything, whose listeners are on free ports of 127.0.0.1 and ::1.
func newBackend(t *testing.T) (*rig, *fakeDevice) {
	t.Helper()
	r, d := newRig(t), &fakeDevice{}
	r.Loopback, r.SetAddresses, r.net.anyPort = false, d.Set, true
	return r, d
}

// real returns the address at which the listener of a place really is.
func (r *rig) real(vip string, port uint16) string {
	r.Helper()
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	at, ok := r.net.at[netip.AddrPortFrom(netip.MustParseAddr(vip), port).String()]
	if !ok {
		r.Fatalf("nothing listens at %s:%d", vip, port)
	}
	return at
}

// The listeners of random clusters are at the places that are wanted, and the device has the addresses of Services
// and none of the node or of pods; by any way there.
func TestEverythingFollowsRandomChanges(t *testing.T) {
	r, d := newBackend(t)
	random := modeltest.NewRandom(modeltest.Seed(1))
	for range 200 {
		random.Steps(r.builder, 3)
		_ = r.Apply(t.Context(), r.builder.Snapshot())
		w := r.now.Load()
		for vip := range w.places {
			if r.listeners[vip] == nil && vip.Protocol != model.SCTP {
				t.Fatalf("nothing listens at %v", vip)
			}
		}
		if n := len(r.listeners) + len(r.missing); n != len(w.places) {
			t.Fatalf("want %d listeners, got %d", len(w.places), n)
		}
		for _, f := range model.Families {
			s := r.builder.Snapshot().Family(f)
			for a := range s.ClusterIPs.All() {
				if _, ok := d.addrs[a]; !ok {
					t.Fatalf("the device lacks the cluster IP %v", a)
				}
			}
			for _, a := range s.NodeAddrs {
				if _, ok := d.addrs[a]; ok && !s.IsClusterIP(a) {
					t.Fatalf("the device has the node's address %v", a)
				}
			}
		}
	}
}

// An address that can't be added fails the round, and keeps no other one from being served.
func TestAnAddressThatCannotBeAdded(t *testing.T) {
	r, d := newBackend(t)
	d.err = errors.New("no")
	web("TCP", 30041).Set(r.builder)
	slice("TCP", r.pod(0, tcpServer(t, echo('a')))).Set(r.builder)
	if err := r.Apply(t.Context(), r.builder.Snapshot()); !errors.Is(err, d.err) {
		t.Errorf("want the error of the device, got %v", err)
	}
	whoOnce(t, r.real("172.30.0.41", 80))
}

// A Service whose endpoint is a Service would make the process connect to itself for ever.
func TestNoConnectionToItself(t *testing.T) {
	r, _ := newBackend(t)
	r.set(modeltest.NewService("ns1/loop").On("172.30.0.42").TCP("http", 8080),
		modeltest.NewSlice("ns1/loop-1", "loop").TCP("http", 8080).Ready("172.30.0.42"))
	mustBeReset(t, r.real("172.30.0.42", 8080))
	if _, dials := r.opened(); dials != 0 {
		t.Errorf("connected %d times", dials)
	}
}

// Connections to an endpoint that leaves end after the time of grace, and not if it comes back before.
func TestConnectionsEndAfterTheGrace(t *testing.T) {
	r, _ := newBackend(t)
	after := func(grace string) modeltest.Service {
		s := web("TCP", 30041)
		s.Annotations = map[string]string{model.AnnotationConnectionGrace: grace}
		return s
	}
	a, b := r.pod(0, tcpServer(t, echo('a'))), r.pod(1, tcpServer(t, echo('b')))
	r.set(after("50ms"), slice("TCP", a))
	at := r.real("172.30.0.41", 80)
	_, old := who(t, at)
	r.set(slice("TCP", b))
	_, stays := who(t, at)
	if _, err := io.Copy(io.Discard, old); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint left: want a reset, got %v", err)
	}
	mustEcho(t, stays)
	r.set(after("1h"), slice("TCP", a))
	leaving := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for fl := range r.flows {
			if fl.leaving != nil {
				n++
			}
		}
		return n
	}
	if n := leaving(); n != 1 {
		t.Errorf("want one connection that is to end, got %d", n)
	}
	r.set(slice("TCP", a, b))
	if n := leaving(); n != 0 {
		t.Errorf("the endpoint came back, and %d connections are to end", n)
	}
	mustEcho(t, stays)
}

// A connection may come while its listener closes: nothing is decided about it.
func TestAListenerThatIsGone(t *testing.T) {
	r, _ := newBackend(t)
	r.apply()
	if d := r.decide(model.VIP{Addr: model.IPv4.Loopback(), Protocol: model.TCP, Port: 1}, netip.MustParseAddrPort("10.0.0.1:1")); d.Port != nil {
		t.Errorf("got %+v", d)
	}
}

// A pod is recognized by the interface by which packets to it leave.
func TestInterfaceTo(t *testing.T) {
	if got := interfaceTo(model.IPv4.Loopback()); got != "lo" {
		t.Errorf("127.0.0.1: %q, want lo", got)
	}
	if got := interfaceTo(netip.Addr{}); got != "" {
		t.Errorf("no address: %q", got)
	}
}

// Listeners beyond the limit are left out, with a problem of each Service, and come when there is room.
func TestTooManyListeners(t *testing.T) {
	r, _ := newBackend(t)
	r.limits.listeners = 3
	nodePorts(5, r.builder)
	_ = r.Apply(t.Context(), r.builder.Snapshot())
	all, told := len(r.now.Load().places), r.failures()
	missing, _ := r.Compare(t.Context(), model.IPv4, nil, nil)
	if n := len(missing); n != all-3 || len(told) != all-3 || !strings.Contains(told[0], "RLIMIT_NOFILE") {
		t.Errorf("want %d listeners missing and told, got %d, %v", all-3, n, told)
	}
	var apart []string
	for sp := range r.builder.Snapshot().Family(model.IPv4).ServicePorts() {
		of, _ := r.Compare(t.Context(), model.IPv4, nil, sp)
		if slices.ContainsFunc(of, func(text string) bool { return !strings.Contains(text, " for "+sp.Name.String()+":") }) {
			t.Errorf("of %v alone: %v", sp.Name, of)
		}
		apart = append(apart, of...)
	}
	if slices.Sort(apart); !slices.Equal(apart, missing) {
		t.Errorf("by service ports: %v, want %v", apart, missing)
	}
	_ = r.Apply(t.Context(), r.builder.Snapshot())
	if again := r.failures(); len(again) > 0 {
		t.Errorf("told again: %v", again)
	}
	r.limits.listeners = all
	r.apply()
}

// A client outside of the source ranges is reset, and a datagram of one has no answer.
func TestSourceRangesAreCheckedAfterAccept(t *testing.T) {
	r, _ := newBackend(t)
	r.set(modeltest.NewService("ns1/web").Typed("LoadBalancer").On("172.30.0.41").TCP("http", 80).LoadBalancer("192.0.2.80").
		Ranges("198.51.100.0/24"), slice("TCP", r.pod(0, tcpServer(t, echo('a')))))
	mustBeReset(t, r.real("192.0.2.80", 80))
	whoOnce(t, r.real("172.30.0.41", 80))
	if _, dials := r.opened(); dials != 1 {
		t.Errorf("%d connections to the endpoint", dials)
	}
}
