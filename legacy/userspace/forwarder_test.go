package userspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// What each service port wants is what model.Decide says of its node port.
func TestWantedIsWhatDecideSays(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(150) {
		b := modeltest.Builder(config(true))
		r := modeltest.NewRandom(modeltest.Seed(seed))
		r.Steps(b, 60)
		s := b.Snapshot()
		for _, f := range model.Families {
			for sp := range s.Family(f).ServicePorts() {
				for _, fe := range sp.Frontends {
					if fe.Kind == model.NodePort {
						seen[compareWithDecide(t, s, sp, fe)]++
					}
				}
			}
		}
	}
	for _, what := range []string{"forwarded", "rejected", "not ours"} {
		if seen[what] < 5 {
			t.Errorf("only %d random node ports are %s", seen[what], what)
		}
	}
}

// compareWithDecide returns what becomes of connections to a node port.
func compareWithDecide(t *testing.T, s *model.Snapshot, sp *model.ServicePort, fe model.Frontend) string {
	t.Helper()
	at := netip.AddrPortFrom(sp.Family.Loopback(), fe.VIP.Port)
	d := model.Decide(s, model.Connection{Source: at.Addr(), Node: true, Dest: at, Protocol: fe.VIP.Protocol})
	var targets []netip.AddrPort
	for _, target := range d.Targets {
		targets = append(targets, target.Addr)
	}
	places := Places(s.Family(sp.Family), sp, Loopback)
	want := []Place{{model.VIP{Addr: at.Addr(), Protocol: fe.VIP.Protocol, Port: at.Port()}, model.NodePort}}
	if d.Verdict != model.Forwarded {
		want = nil
	}
	if !slices.Equal(places, want) {
		t.Errorf("%v/%v: %v, but served is %v", at, fe.VIP.Protocol, d.Verdict, places)
		return d.Verdict.String()
	}
	for _, p := range places {
		served := s.Family(sp.Family).DecideAt(sp, frontendAt(sp, p), d.Connection)
		var endpoints []netip.AddrPort
		for e := range sp.In(served.TrafficPolicy) {
			endpoints = append(endpoints, e.Addr)
		}
		if !slices.Equal(endpoints, targets) || served.Why != d.Why {
			t.Errorf("%v/%v: %v to %v, but served are %v (%v)", at, fe.VIP.Protocol, d.Verdict, targets, endpoints, served.Verdict)
		}
	}
	return d.Verdict.String()
}

func TestOnlyTheFamiliesThatAreSwitchedOn(t *testing.T) {
	r, port := newRig(t), freePort(t)
	both := func(on bool) *model.Snapshot {
		return modeltest.Snapshot(config(on), modeltest.OurNode(), web("TCP", port),
			slice(model.IPv4, "TCP", r.pod(0, tcpServer(t, model.IPv4, echo('a')))))
	}
	for _, on := range []bool{false, true, false, true} {
		_ = r.follow(both(on))
		if !on {
			mustBeRefused(t, nodePort(model.IPv4, port))
			continue
		}
		_, c := who(t, nodePort(model.IPv4, port))
		_ = r.follow(both(false))
		mustEcho(t, c)
	}
	// Nothing of IPv6 has an endpoint, nothing listens there.
	mustBeRefused(t, nodePort(model.IPv6, port))
}

func TestSCTPHasNoListener(t *testing.T) {
	r, port := newRig(t), freePort(t)
	r.set(web("SCTP", port), slice(model.IPv4, "SCTP", "10.0.0.2"))
	if listens, _ := r.opened(); listens != 0 || len(r.entries) != 0 {
		t.Errorf("listened %d times", listens)
	}
}

// TCP and UDP may share a node port, as those of DNS do.
func TestTCPAndUDPOnOneNumber(t *testing.T) {
	r, port := newRig(t), freePort(t)
	pod := r.pod(0, tcpServer(t, model.IPv4, echo('t')))
	r.pod(1, udpServer(t, model.IPv4, 'u'))
	r.set(web("TCP", port).Port(model.Port{Name: "dns", Protocol: "UDP", Port: 53}).NodePort(int32(port)),
		slice(model.IPv4, "TCP", pod),
		modeltest.NewSlice("ns1/web-udp", "web").UDP("dns", 8080).Ready("10.0.0.3"))
	if got := whoOnce(t, nodePort(model.IPv4, port)); got != 't' {
		t.Errorf("TCP comes to %c", got)
	}
	if got := ask(t, dialUDP(t, nodePort(model.IPv4, port)), "1"); got != 'u' {
		t.Errorf("UDP comes to %c", got)
	}
}

func TestAlgorithmsAndAffinityOfConnections(t *testing.T) {
	inBothFamilies(t, func(t *testing.T, f model.Family) {
		r, port := newRig(t), freePort(t)
		pods := []string{
			r.pod(0, tcpServer(t, f, echo('a'))), r.pod(1, tcpServer(t, f, echo('b'))), r.pod(2, tcpServer(t, f, echo('c'))),
		}
		r.set(slice(f, "TCP", pods...))
		six := func(s modeltest.Service) string {
			r.set(s)
			var names []byte
			for range 6 {
				names = append(names, whoOnce(t, nodePort(f, port)))
			}
			return string(names)
		}
		if got := six(web("TCP", port).Algorithm("maglev")); got != strings.Repeat(got[:1], 6) {
			t.Errorf("maglev: %s", got)
		}
		if got := six(web("TCP", port).Sticky(60)); got != strings.Repeat(got[:1], 6) {
			t.Errorf("affinity: %s", got)
		}
		var random string
		for range 20 { // each is missing once in 10^21 runs
			random += six(web("TCP", port))
		}
		if !strings.Contains(random, "a") || !strings.Contains(random, "b") || !strings.Contains(random, "c") {
			t.Errorf("random: %s", random)
		}
	})
}

// Sticky clients of UDP are told by their address, not by their port.
func TestAffinityOfDatagrams(t *testing.T) {
	r, port := newRig(t), freePort(t)
	r.set(web("UDP", port).Sticky(60), slice(model.IPv4, "UDP",
		r.pod(0, udpServer(t, model.IPv4, 'a')), r.pod(1, udpServer(t, model.IPv4, 'b'))))
	var got string
	for range 20 {
		got += string(ask(t, dialUDP(t, nodePort(model.IPv4, port)), "1"))
	}
	if got != strings.Repeat(got[:1], len(got)) {
		t.Errorf("want one endpoint, got %s", got)
	}
}

func TestATakenPortIsTriedAgain(t *testing.T) {
	r, port, other := newRig(t), freePort(t), freePort(t)
	pod := r.pod(0, tcpServer(t, model.IPv4, echo('a')))
	taken, err := net.Listen("tcp", nodePort(model.IPv4, port))
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(taken)
	web("TCP", port).TCP("other", 81).NodePort(int32(other)).Set(r.builder)
	slice(model.IPv4, "TCP", pod).TCP("other", 8080).Set(r.builder)
	want := []string{fmt.Sprintf("ns1/web: listen on 127.0.0.1:%d/tcp for service port ns1/web:http: bind: address already in use", port)}
	_ = r.follow(r.builder.Snapshot())
	if diff := cmp.Diff(want, r.failures()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_ = r.follow(r.builder.Snapshot())
	if got := r.failures(); len(got) > 0 || r.Stats()[model.IPv4].Failures != 2 {
		t.Errorf("a second try and no second report are wanted, got %v, %+v", got, r.Stats()[model.IPv4])
	}
	whoOnce(t, nodePort(model.IPv4, other)) // the others go on

	hangUp(taken)
	r.apply()
	whoOnce(t, nodePort(model.IPv4, port))
	r.opened()
	r.apply()
	if listens, _ := r.opened(); listens != 0 {
		t.Errorf("nothing was missing, and it was tried to listen %d times", listens)
	}
}

func TestATakenPortThatIsNotWantedAnyMore(t *testing.T) {
	r, port := newRig(t), freePort(t)
	taken, err := net.ListenPacket("udp", nodePort(model.IPv4, port))
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(taken)
	web("UDP", port).Set(r.builder)
	slice(model.IPv4, "UDP", "10.0.0.2").Set(r.builder)
	_ = r.follow(r.builder.Snapshot())
	if got := r.Stats()[model.IPv4].Missing; got != 1 {
		t.Fatalf("want 1 missing port, got %d", got)
	}
	r.set(slice(model.IPv4, "UDP"))
}

// nodePorts sets n Services with a node port and an endpoint each.
func nodePorts(n int, b *model.Builder) {
	for i := range n {
		s := modeltest.ClusterService(i)
		s.Type = "NodePort"
		s.NodePort(int32(20000 + i)).Set(b)
		modeltest.ClusterSlice(i, 1, 0).Set(b)
	}
}

// What is tried, and when, while a port is taken.
func TestATakenPortIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		f := New(Options{Scope: Loopback, Failed: func(model.NamespacedName, error) { failures++ }})
		start, tries := time.Now(), []time.Duration(nil)
		f.open.listenTCP = func(context.Context, netip.AddrPort) (*net.TCPListener, error) {
			tries = append(tries, time.Since(start))
			return nil, syscall.EADDRINUSE
		}
		running(t, f)
		b := modeltest.Builder(config(true), modeltest.OurNode())
		check := func(want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, tries); diff != "" {
				t.Errorf("tried at (-want +got):\n%s", diff)
			}
			start, tries = time.Now(), nil
		}
		const ms = time.Millisecond
		nodePorts(1, b)
		f.Follow(b.Snapshot())
		time.Sleep(10 * time.Second)
		check(0, 100*ms, 300*ms, 700*ms, 1500*ms, 3100*ms, 5100*ms, 7100*ms, 9100*ms)
		f.Follow(b.Snapshot()) // is an occasion, too
		check(0)
		nodePorts(2, b) // begins with short pauses again
		f.Follow(b.Snapshot())
		time.Sleep(500 * ms)
		check(0, 0, 100*ms, 100*ms, 300*ms, 300*ms)
		modeltest.ClusterService(0).Delete(b)
		modeltest.ClusterService(1).Delete(b)
		f.Follow(b.Snapshot())
		time.Sleep(time.Hour)
		check()
		if failures != 2 {
			t.Errorf("told of %d failures, want 2: one for each port, as they stay the same", failures)
		}
	})
}

func TestRunFollowsEverySnapshot(t *testing.T) {
	r, port, taken := newRig(t), freePort(t), freePort(t)
	var log syncBuffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	a, b := r.pod(0, tcpServer(t, model.IPv4, echo('a'))), r.pod(1, tcpServer(t, model.IPv4, echo('b')))
	other, err := net.Listen("tcp", nodePort(model.IPv4, taken))
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(other)
	stop := running(t, r.Forwarder)
	web("TCP", port).TCP("other", 81).NodePort(int32(taken)).Set(r.builder)
	round := func(pod string) {
		t.Helper()
		slice(model.IPv4, "TCP", pod).TCP("other", 8080).Set(r.builder)
		s := r.builder.Snapshot()
		r.Follow(s)
		eventually(t, "the round is followed", func() bool {
			r.Forwarder.mu.Lock()
			defer r.Forwarder.mu.Unlock()
			return r.applied == s
		})
	}
	round(a)
	name, c := who(t, nodePort(model.IPv4, port))
	if name != 'a' {
		t.Errorf("want the answer of a, got that of %c", name)
	}
	round(b)
	if name := whoOnce(t, nodePort(model.IPv4, port)); name != 'b' {
		t.Errorf("after the next snapshot, want the answer of b, got that of %c", name)
	}
	want := Stats{Listeners: 1, Missing: 1, Accepted: 2}
	got := r.Stats()[model.IPv4]
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Stats{}, "Failures")); diff != "" || got.Failures == 0 {
		t.Errorf("%d failures, (-want +got):\n%s", got.Failures, diff)
	}

	hangUp(other)
	eventually(t, "the other port is open", func() bool { return r.Stats()[model.IPv4].Missing == 0 })
	whoOnce(t, nodePort(model.IPv4, taken))
	mustEcho(t, c)
	stop()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("at the end, want a reset, got %v", err)
	}
	mustBeRefused(t, nodePort(model.IPv4, port))
	for _, line := range []string{"cannot listen; retrying", "which had failed"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("want %q once, got it %d times:\n%s", line, n, log.String())
		}
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestANodePortMoves(t *testing.T) {
	r, port, other := newRig(t), freePort(t), freePort(t)
	a := r.pod(0, tcpServer(t, model.IPv4, echo('a')))
	b := r.pod(1, tcpServer(t, model.IPv4, echo('b')))
	// Whichever of the two names comes first in a snapshot, the one listener is closed
	// before the other is opened.
	r.set(web("TCP", port), slice(model.IPv4, "TCP", a),
		modeltest.NewSlice("ns1/api-1", "api").TCP("", 8080).Ready(b))
	api := modeltest.NewService("ns1/api").On("172.30.0.42").TCP("", 80)
	for range 2 {
		if name := whoOnce(t, nodePort(model.IPv4, port)); name != 'a' {
			t.Errorf("the port is web's, and %c answers", name)
		}
		_, old := who(t, nodePort(model.IPv4, port))
		r.set(web("TCP", other), api.NodePort(int32(port)))
		if name := whoOnce(t, nodePort(model.IPv4, port)); name != 'b' {
			t.Errorf("the port is api's now, and %c answers", name)
		}
		if name := whoOnce(t, nodePort(model.IPv4, other)); name != 'a' {
			t.Errorf("the other port is web's now, and %c answers", name)
		}
		mustEcho(t, old)
		r.set(web("TCP", port), api.NodePort(int32(other)))
	}
}

func TestCostFollowsTheChange(t *testing.T) {
	r := newRig(t)
	anyPort(r.Forwarder)
	const n = 200
	nodePorts(n, r.builder)
	r.apply()
	if listens, _ := r.opened(); listens != n {
		t.Errorf("want %d listeners, got %d", n, listens)
	}
	before := map[model.VIP]listener{}
	for vip, e := range r.entries {
		before[vip] = e.listener
	}
	r.apply()
	modeltest.ClusterSlice(7, 3, 0).Set(r.builder) // other endpoints
	r.apply()
	rebuilt := modeltest.Builder(config(true), modeltest.OurNode()) // as after a full resync
	nodePorts(n, rebuilt)
	_ = r.follow(rebuilt.Snapshot())
	if listens, _ := r.opened(); listens != 0 {
		t.Errorf("no address changed, and it was tried to listen %d times", listens)
	}
	for vip, e := range r.entries {
		if before[vip] != e.listener {
			t.Errorf("%v has another listener", vip)
		}
	}
	modeltest.ClusterService(7).Delete(r.builder)
	nodePorts(n+1, r.builder)
	modeltest.ClusterService(8).Delete(r.builder)
	r.apply()
	if listens, _ := r.opened(); listens != 1 || len(r.entries) != n {
		t.Errorf("want 1 new listener and %d in all, got %d and %d", n, listens, len(r.entries))
	}
}

// The same state is reached whatever the way there was.
func TestListenersFollowRandomChanges(t *testing.T) {
	r := newRig(t)
	anyPort(r.Forwarder)
	random := modeltest.NewRandom(modeltest.Seed(1))
	for range 400 {
		random.Steps(r.builder, 3)
		s := r.builder.Snapshot()
		_ = r.follow(s)
		want, got := map[string]string{}, map[string]string{}
		for _, f := range model.Families {
			for sp := range s.Family(f).ServicePorts() {
				for _, at := range Places(s.Family(f), sp, Loopback) {
					want[at.String()] = fmt.Sprint(f, sp.Name)
				}
			}
		}
		for vip, e := range r.entries {
			if e.listener != nil {
				o := e.owner.Load()
				got[vip.String()] = fmt.Sprint(o.key.family, o.key.name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}
