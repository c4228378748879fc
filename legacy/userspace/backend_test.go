package userspace

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// fakeDevice is a Device in memory.
type fakeDevice struct {
	addrs map[netip.Addr]struct{}
	calls int
	fail  map[netip.Addr]bool
}

func (d *fakeDevice) Addrs() (map[netip.Addr]struct{}, error) { return maps.Clone(d.addrs), nil }

func (d *fakeDevice) Add(a netip.Addr) error {
	d.calls++
	if d.fail[a] {
		return errors.New("no")
	}
	d.addrs[a] = struct{}{}
	return nil
}

func (d *fakeDevice) Remove(a netip.Addr) error {
	d.calls++
	delete(d.addrs, a)
	return nil
}

// newBackend returns a rig that serves everything, whose listeners are on free ports of 127.0.0.1 and ::1.
func newBackend(t *testing.T) (*rig, *fakeDevice) {
	t.Helper()
	r, d := newRig(t), &fakeDevice{addrs: map[netip.Addr]struct{}{}, fail: map[netip.Addr]bool{}}
	r.scope, r.device = Everything, &addresses{device: d, wanted: map[netip.Addr]int{}}
	listen := r.open
	r.open.listenTCP = func(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
		return listen.listenTCP(ctx, netip.AddrPortFrom(model.FamilyOf(at.Addr()).Loopback(), 0))
	}
	r.open.listenUDP = func(ctx context.Context, at netip.AddrPort) (*net.UDPConn, error) {
		return listen.listenUDP(ctx, netip.AddrPortFrom(model.FamilyOf(at.Addr()).Loopback(), 0))
	}
	return r, d
}

// real returns the address at which the listener of a place really is.
func (r *rig) real(vip string, port uint16) string {
	r.Helper()
	e := r.entries[model.VIP{Addr: netip.MustParseAddr(vip), Protocol: model.TCP, Port: port}]
	if e == nil || e.listener == nil {
		r.Fatalf("nothing listens at %s:%d", vip, port)
	}
	return e.listener.(*connListener).socket.Addr().String()
}

// The listeners of random clusters are at the places where Decide forwards, and the device has the
// addresses; by any way there.
func TestEverythingFollowsRandomChanges(t *testing.T) {
	r, d := newBackend(t)
	random := modeltest.NewRandom(modeltest.Seed(1))
	for range 200 {
		random.Steps(r.builder, 3)
		s := r.builder.Snapshot()
		if err := r.follow(s); err != nil {
			t.Fatal(err)
		}
		want, addrs := map[model.VIP]string{}, map[netip.Addr]bool{}
		for _, f := range model.Families {
			fs := s.Family(f)
			for a := range fs.ClusterIPs() {
				addrs[a] = true
			}
			for sp := range fs.ServicePorts() {
				for _, a := range serviceAddrs(fs, sp) {
					addrs[a] = true
				}
				for _, at := range Places(fs, sp, Everything) {
					if _, taken := want[at.VIP]; !taken || at.Kind != model.NodePort {
						want[at.VIP] = sp.Name.String()
					}
				}
			}
		}
		got := map[model.VIP]string{}
		for vip, e := range r.entries {
			if e.listener != nil {
				got[vip] = e.owner.Load().key.name.String()
			}
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b model.VIP) bool { return a == b })); diff != "" && !maps.Equal(want, got) {
			t.Fatalf("listeners (-want +got):\n%s", diff)
		}
		for a := range d.addrs {
			if !addrs[a] {
				t.Fatalf("%v is on the device, and nobody has it", a)
			}
		}
		if len(d.addrs) != len(addrs) {
			t.Fatalf("want %d addresses on the device, got %d", len(addrs), len(d.addrs))
		}
	}
	d.calls = 0
	if err := r.follow(r.builder.Snapshot()); err != nil || d.calls != 0 {
		t.Errorf("nothing changed, and there were %d changes of the device: %v", d.calls, err)
	}
}

// An address that can't be added fails the round, keeps no other one from being served, and is tried again.
func TestAnAddressThatCannotBeAdded(t *testing.T) {
	r, d := newBackend(t)
	d.fail[netip.MustParseAddr("172.30.0.41")] = true
	d.addrs[netip.MustParseAddr("172.30.0.99")] = struct{}{} // left by an earlier process
	web("TCP", 30041).Set(r.builder)
	err := r.follow(r.builder.Snapshot())
	var family *model.FamilyError
	if !errors.As(err, &family) || family.Family != model.IPv4 || !strings.Contains(err.Error(), "add the address 172.30.0.41: no") {
		t.Errorf("want an error of IPv4 about the address, got %v", err)
	}
	want := map[netip.Addr]struct{}{netip.MustParseAddr("fd00:172:30::41"): {}}
	if !maps.Equal(d.addrs, want) {
		t.Errorf("want %v on the device, got %v", want, d.addrs)
	}
	delete(d.fail, netip.MustParseAddr("172.30.0.41"))
	r.apply()
	if len(d.addrs) != 2 {
		t.Errorf("want both addresses on the device, got %v", d.addrs)
	}
	// What somebody else removes is there again after a resync.
	clear(d.addrs)
	r.Resync()
	r.apply()
	if len(d.addrs) != 2 {
		t.Errorf("after a resync, want both addresses on the device, got %v", d.addrs)
	}
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
	if got := r.Connections(); got.Failed != 1 {
		t.Errorf("want one connection that failed, got %+v", got)
	}
}

// Connections to an endpoint that leaves end after the time of grace, and not if it comes back before.
func TestConnectionsEndAfterTheGrace(t *testing.T) {
	r, _ := newBackend(t)
	config := config(false)
	config.ConnectionGrace = 50 * time.Millisecond
	r.builder.SetConfig(config)
	a, b := r.pod(0, tcpServer(t, model.IPv4, echo('a'))), r.pod(1, tcpServer(t, model.IPv4, echo('b')))
	r.set(web("TCP", 30041), slice(model.IPv4, "TCP", a))
	at := r.real("172.30.0.41", 80)
	_, old := who(t, at)
	r.set(slice(model.IPv4, "TCP", b))
	_, stays := who(t, at)
	if _, err := io.Copy(io.Discard, old); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the endpoint left: want a reset, got %v", err)
	}
	mustEcho(t, stays)
	config.ConnectionGrace = time.Hour
	r.builder.SetConfig(config)
	r.set(slice(model.IPv4, "TCP", a))
	leaving := func() (n int) {
		for _, p := range r.ports {
			n += len(p.leaving)
		}
		return n
	}
	if n := leaving(); n != 1 {
		t.Errorf("want one endpoint that leaves, got %d", n)
	}
	r.set(slice(model.IPv4, "TCP", a, b))
	if n := leaving(); n != 0 {
		t.Errorf("the endpoint came back, and %d leave", n)
	}
	mustEcho(t, stays)
}

// Listeners beyond the limit are left out, with a problem of each Service, and come when there is room.
func TestTooManyListeners(t *testing.T) {
	r, _ := newBackend(t)
	r.limits.places = 3
	nodePorts(5, r.builder)
	_ = r.follow(r.builder.Snapshot())
	all := len(r.entries)
	told := r.failures()
	if len(r.missing) != all-3 || len(told) != all-3 || !strings.Contains(told[0], "RLIMIT_NOFILE") {
		t.Errorf("want %d listeners missing and told, got %d, %v", all-3, len(r.missing), told)
	}
	r.retry()
	if again := r.failures(); len(again) > 0 {
		t.Errorf("told again: %v", again)
	}
	r.limits.places = all
	r.retry()
	if len(r.missing) != 0 {
		t.Errorf("there is room, and %d are missing", len(r.missing))
	}
}

// Data passes by splice, and no pipe is held while none is on its way.
func TestPipesAreHeldOnlyForData(t *testing.T) {
	r, _ := newBackend(t)
	r.set(web("TCP", 30041), slice(model.IPv4, "TCP", r.pod(0, tcpServer(t, model.IPv4, echo('a')))))
	at := r.real("172.30.0.41", 80)
	for range 20 {
		_, c := who(t, at)
		mustEcho(t, c)
	}
	if got := r.counts.spliced.Load(); got == 0 {
		t.Error("nothing was spliced")
	}
	made := 0
	eventually(t, "all pipes are idle", func() bool {
		r.pipes.mu.Lock()
		defer r.pipes.mu.Unlock()
		made = r.pipes.made
		return len(r.pipes.idle) == made
	})
	if made > 10 {
		t.Errorf("20 connections that wait have %d pipes", made)
	}
}

// Without files for pipes, data passes by buffers.
func TestWithoutPipes(t *testing.T) {
	r, _ := newBackend(t)
	r.pipes.most = -1
	r.set(web("TCP", 30041), slice(model.IPv4, "TCP", r.pod(0, tcpServer(t, model.IPv4, echo('a')))))
	_, c := who(t, r.real("172.30.0.41", 80))
	mustEcho(t, c)
	if got := r.counts.spliced.Load(); got != 0 {
		t.Errorf("%d bytes were spliced", got)
	}
}

// What DecideAt says of a frontend is what Decide says of a connection to its address.
func TestDecideAtIsDecide(t *testing.T) {
	seen := map[model.Verdict]int{}
	for seed := range uint64(60) {
		b := modeltest.Builder(config(true))
		modeltest.NewRandom(modeltest.Seed(seed)).Steps(b, 60)
		s := b.Snapshot()
		for _, f := range model.Families {
			fs := s.Family(f)
			for sp := range fs.ServicePorts() {
				for _, at := range Places(fs, sp, Everything) {
					if at.Addr.IsLoopback() {
						continue
					}
					for _, source := range slices.Concat(fs.NodeAddrs, []netip.Addr{modeltest.Pod(f, 1)}) {
						c := model.Connection{Source: source, Node: slices.Contains(fs.NodeAddrs, source), Dest: netip.AddrPortFrom(at.Addr, at.Port), Protocol: at.Protocol}
						want := model.Decide(s, c)
						if want.Port != sp {
							continue // the address of a Service precedes the node port
						}
						got := fs.DecideAt(sp, frontendAt(sp, at), c)
						if seen[got.Verdict]++; got.Verdict != want.Verdict || got.Why != want.Why || got.TrafficPolicy != want.TrafficPolicy {
							t.Fatalf("%v from %v: want %v (%v), got %v (%v)", at, source, want.Verdict, want.Why, got.Verdict, got.Why)
						}
					}
				}
			}
		}
	}
	if seen[model.Forwarded] < 50 || seen[model.Dropped] < 5 {
		t.Errorf("too few: %v", seen)
	}
}
