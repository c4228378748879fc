package userspace

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

// Where a Forwarder listens, and what it decides there, is what model.Decide says: for node ports on loopback, and for
// everything.
func TestWantedIsWhatDecideSays(t *testing.T) {
	seen := map[bool]map[model.Verdict]int{false: {}, true: {}}
	for seed := range uint64(100) {
		b := modeltest.Builder(config(seed%4 != 0))
		modeltest.NewRandom(modeltest.Seed(seed)).Steps(b, 60)
		s := b.Snapshot()
		for loopback := range seen {
			f := New(Options{Loopback: loopback})
			f.now.Store(want(s, loopback))
			for _, family := range model.Families {
				for sp := range s.Family(family).ServicePorts() {
					for _, fe := range sp.Frontends {
						for _, at := range destinations(s.Family(family), fe, loopback) {
							seen[loopback][compareWithDecide(t, f, s, sp, at)]++
						}
					}
				}
			}
		}
	}
	for loopback, least := range map[bool]map[model.Verdict]int{
		false: {model.Forwarded: 50, model.Rejected: 5, model.Dropped: 5},
		true:  {model.Forwarded: 5, model.Rejected: 5, model.NotOurs: 5},
	} {
		for v, n := range least {
			if seen[loopback][v] < n {
				t.Errorf("loopback %v: only %d random connections are %v", loopback, seen[loopback][v], v)
			}
		}
	}
}

// destinations returns where clients may connect to a frontend.
func destinations(s *model.FamilySnapshot, fe model.Frontend, loopback bool) (list []model.VIP) {
	addrs := []netip.Addr{fe.VIP.Addr}
	switch {
	case loopback && fe.Kind != model.NodePort:
		return nil
	case loopback:
		addrs = []netip.Addr{s.Family.Loopback()}
	case fe.Kind == model.NodePort:
		addrs = s.NodePortAddrs
	}
	for _, a := range addrs {
		list = append(list, model.VIP{Addr: a, Protocol: fe.VIP.Protocol, Port: fe.VIP.Port})
	}
	return list
}

// compareWithDecide returns what becomes of a process of the node and, but on loopback, of a pod that connects.
func compareWithDecide(t *testing.T, f *Forwarder, s *model.Snapshot, sp *model.ServicePort, at model.VIP) model.Verdict {
	t.Helper()
	sources := []netip.Addr{at.Addr}
	if pod := modeltest.Pod(model.FamilyOf(at.Addr), 1); !at.Addr.IsLoopback() && pod != at.Addr {
		sources = append(sources, pod)
	}
	var last model.Verdict
	for i, source := range sources {
		want := model.Decide(s, model.Connection{Source: source, Node: i == 0, Dest: netip.AddrPortFrom(at.Addr, at.Port), Protocol: at.Protocol})
		last = want.Verdict
		got := f.decide(at, netip.AddrPortFrom(source, 0))
		if want.Port != nil && want.Port != sp {
			continue // the address of another Service precedes the node port
		}
		if at.Protocol == model.SCTP || got.Port != want.Port && want.Frontend.Action == model.Reject {
			continue // there is no listener, or that of a node port
		}
		if got.Verdict != want.Verdict || got.Why != want.Why || got.TrafficPolicy != want.TrafficPolicy || got.Port != want.Port {
			t.Errorf("%v from %v: want %v (%v), got %v (%v)", at, source, want.Verdict, want.Why, got.Verdict, got.Why)
		}
	}
	return last
}

// SCTP has no listener; the backend says so once for each place, and goes on.
func TestSCTPIsNotServed(t *testing.T) {
	for loopback, want := range map[bool][]string{
		false: {"ns1/web: service port ns1/web:http: the backend userspace has no SCTP"},
		true:  nil,
	} {
		r := newRig(t)
		r.Loopback = loopback
		port := model.Port{Name: "http", Protocol: "SCTP", Port: 80}
		service := modeltest.NewService("ns1/web").On("172.30.0.41").Port(port)
		for range 2 {
			service.Set(r.builder)
			slice("SCTP", "10.0.0.2").Set(r.builder)
			_ = r.Apply(t.Context(), r.builder.Snapshot())
		}
		if listens, _ := r.opened(); listens != 0 || len(r.listeners) != 0 {
			t.Errorf("listened %d times", listens)
		}
		if diff := cmp.Diff(want, r.failures()); diff != "" {
			t.Errorf("loopback %v (-want +got):\n%s", loopback, diff)
		}
	}
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

func TestRunRetriesUntilItEnds(t *testing.T) {
	r, ports := newRig(t), testaid.FreePorts(t, 2)
	port, taken := ports[0], ports[1]
	var log testlog.Log
	r.Forwarder.Log = slog.New(slog.NewTextHandler(&log, nil))
	a, b := r.pod(0, tcpServer(t, echo('a'))), r.pod(1, tcpServer(t, echo('b')))
	other, err := net.Listen("tcp", nodePort(taken))
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(other)
	stop := testaid.Run(t, r.Forwarder.Run)
	web("TCP", port).TCP("other", 81).NodePort(int32(taken)).Set(r.builder)
	round := func(pod string) {
		t.Helper()
		slice("TCP", pod).TCP("other", 8080).Set(r.builder)
		_ = r.Apply(t.Context(), r.builder.Snapshot()) // a port is taken
	}
	round(a)
	name, c := who(t, nodePort(port))
	if name != 'a' {
		t.Errorf("want the answer of a, got that of %c", name)
	}
	round(b)
	if name := whoOnce(t, nodePort(port)); name != 'b' {
		t.Errorf("after the next snapshot, want the answer of b, got that of %c", name)
	}
	want := Stats{Listeners: 1, Missing: 1, Accepted: 2}
	got := r.Stats()[model.IPv4]
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Stats{}, "Failures")); diff != "" || got.Failures < 2 {
		t.Errorf("%d failures, (-want +got):\n%s", got.Failures, diff)
	}
	told := []string{fmt.Sprintf("ns1/web: service port ns1/web:other: listen tcp 127.0.0.1:%d: bind: address already in use", taken)}
	testaid.Equal(t, "what is reported", told, r.failures())

	hangUp(other)
	testaid.WaitUntil(t, "the other port is open", func() bool { return r.Stats()[model.IPv4].Missing == 0 })
	whoOnce(t, nodePort(taken))
	mustEcho(t, c)
	stop()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("at the end, want a reset, got %v", err)
	}
	mustBeRefused(t, nodePort(port))
	if n := strings.Count(log.String(), "cannot listen; retrying"); n != 1 {
		t.Errorf("want one line about the failure, got %d:\n%s", n, log.String())
	}
}

// Listeners whose address does not change stay.
func TestOnlyWhatChangesIsOpened(t *testing.T) {
	r := newRig(t)
	r.net.anyPort = true
	const n = 200
	nodePorts(n, r.builder)
	r.apply()
	if listens, _ := r.opened(); listens != n {
		t.Errorf("want %d listeners, got %d", n, listens)
	}
	r.apply()
	modeltest.ClusterSlice(7, 3, 0).Set(r.builder) // other endpoints
	r.apply()
	rebuilt := modeltest.Builder(config(true), modeltest.OurNode()) // as after a full resync
	nodePorts(n, rebuilt)
	_ = r.Apply(t.Context(), rebuilt.Snapshot())
	if listens, _ := r.opened(); listens != 0 {
		t.Errorf("no address changed, and it was tried to listen %d times", listens)
	}
	modeltest.ClusterService(7).Delete(r.builder)
	nodePorts(n+1, r.builder)
	modeltest.ClusterService(8).Delete(r.builder)
	r.apply()
	if listens, _ := r.opened(); listens != 1 || len(r.listeners) != n {
		t.Errorf("want 1 new listener and %d in all, got %d and %d", n, listens, len(r.listeners))
	}
}
