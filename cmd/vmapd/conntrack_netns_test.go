package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	timo "github.com/ti-mo/conntrack"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// trackers are the backends whose flows conntrack cleans up. Each returns what programs the
// node's kernel.
var trackers = []struct {
	name string
	open func(t *testing.T, node *lab.Namespace) reconcile.Backend
}{
	{"nftables", func(t *testing.T, node *lab.Namespace) reconcile.Backend {
		t.Helper()
		return openKernel(t, node, kernel.Options{})
	}},
	{"iptables-legacy", openTablesIn("-legacy")},
	{"iptables-nft", openTablesIn("-nft")},
}

// inside runs a backend's programs in a namespace.
type inside struct {
	*host.IPTables
	node *lab.Namespace
}

func (i inside) Apply(ctx context.Context, s *model.Snapshot) error {
	return i.node.Do(func() error { return i.IPTables.Apply(ctx, s) })
}

func openTablesIn(variant string) func(*testing.T, *lab.Namespace) reconcile.Backend {
	return func(t *testing.T, node *lab.Namespace) reconcile.Backend {
		t.Helper()
		b := inside{node: node}
		err := node.Do(func() (err error) {
			b.IPTables, err = host.OpenIPTables(iptables.Options{Comments: true}, slog.New(slog.DiscardHandler), variant)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// tracked is a world whose node is programmed, and whose flows are cleaned up, as in the
// daemon.
type tracked struct {
	*lab.World
	state   *reconcile.State
	flows   *conntrack.Reconciler
	stop    func()               // ends the programming and the clean-up
	sinks   map[string]*lab.Sink // by pod, for UDP 8080
	streams map[string]*lab.Stream
}

// newTracked builds a world. With ports, its pods answer there; without, they only listen.
func newTracked(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend, pods int, ports ...uint16) *tracked {
	t.Helper()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	w, err := lab.New(t.Context(), lab.Config{Pods: pods, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	tr := &tracked{World: w, sinks: map[string]*lab.Sink{}, streams: map[string]*lab.Stream{}}
	for _, p := range w.Pods() {
		if len(ports) == 0 {
			tr.sinks[p.Name()] = tr.sink(t, p.Namespace, 8080)
		}
	}
	tr.stop = tr.start(t, open)
	return tr
}

// start programs the node, and cleans up its flows, until the test ends or stop is called. The
// objects are none at first.
func (tr *tracked) start(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend, objects ...modeltest.Object) (stop func()) {
	t.Helper()
	var ns *os.File
	if err := tr.Node.Do(func() (err error) { ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	log := slog.New(slog.DiscardHandler)
	backend := open(t, tr.Node)
	r := conntrack.New(conntrack.Options{
		Log: log, NetNS: int(ns.Fd()), Interval: 20 * time.Millisecond,
		Report: func(p conntrack.Pass) {
			if p.Err != nil {
				t.Errorf("clean-up of %v flows: %v", p.Family, p.Err)
			}
		},
	})
	builder := modeltest.Builder(labConfig(), append(objects, modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6))...)
	tr.state, tr.flows = reconcile.NewState(builder, 0), r
	loop := &reconcile.Loop{State: tr.state, Backend: backend, Log: log, Observers: []reconcile.Observer{r}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	go func() { loop.Run(ctx); ended <- struct{}{} }()
	go func() { r.Run(ctx); ended <- struct{}{} }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		<-ended
		if c, ok := backend.(io.Closer); ok {
			_ = c.Close() // its tables are free for the next
		}
	})
	t.Cleanup(stop)
	return stop
}

func (tr *tracked) sink(t *testing.T, ns *lab.Namespace, port uint16) *lab.Sink {
	t.Helper()
	s, err := ns.Sink(port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// set changes objects. What follows from it comes in its own time.
func (tr *tracked) set(objects ...modeltest.Object) {
	tr.state.Update(reconcile.Change{}, func(b *model.Builder) {
		for _, o := range objects {
			o.Set(b)
		}
	})
}

func (tr *tracked) delete(objects ...modeltest.Object) {
	tr.state.Update(reconcile.Change{}, func(b *model.Builder) {
		for _, o := range objects {
			o.Delete(b)
		}
	})
}

// send starts streams, each from a port of its own, and returns their names.
func (tr *tracked) send(t *testing.T, from *lab.Namespace, source [2]string, dests ...netip.AddrPort) []string {
	t.Helper()
	var names []string
	for _, to := range dests {
		const firstPort, every = 20000, 5 * time.Millisecond
		name := fmt.Sprintf("%s to %v", from.Name(), to)
		addr := netip.MustParseAddr(source[model.FamilyOf(to.Addr())])
		s, err := from.Stream(name, netip.AddrPortFrom(addr, uint16(firstPort+len(tr.streams))), to, every)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		tr.streams[name] = s
		names = append(names, name)
	}
	return names
}

// client starts streams from the client.
func (tr *tracked) client(t *testing.T, dests ...netip.AddrPort) []string {
	t.Helper()
	return tr.send(t, tr.Client, [2]string{lab.ClientIP4, lab.ClientIP6}, dests...)
}

// everywhere are all frontends of web.
func everywhere() []netip.AddrPort {
	return append(frontends(model.IPv4), frontends(model.IPv6)...)
}

// enough datagrams say where a stream goes.
const enough = 10

// mustArrive waits until enough datagrams of each stream have come in at a sink, and then
// checks that nothing comes in at any other pod's.
func (tr *tracked) mustArrive(t *testing.T, at string, streams []string) {
	t.Helper()
	tr.mustHear(t, tr.sinks[at], streams)
	before := map[string]int{}
	count := func(into map[string]int) {
		for pod, sink := range tr.sinks {
			for _, name := range streams {
				if pod != at {
					into[pod+" hears "+name] = sink.Heard(name)
				}
			}
		}
	}
	count(before)
	tr.mustHear(t, tr.sinks[at], streams)
	after := map[string]int{}
	count(after)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what is for %s comes in elsewhere, too (-before +after):\n%s", at, diff)
	}
}

func (tr *tracked) mustHear(t *testing.T, sink *lab.Sink, streams []string) {
	t.Helper()
	for _, name := range streams {
		first := sink.Heard(name)
		waitUntil(t, name+" is heard", func() bool { return sink.Heard(name) >= first+enough })
	}
}

// mustCease waits until streams, which go on, come in at no pod any more.
func (tr *tracked) mustCease(t *testing.T, streams []string) {
	t.Helper()
	for _, name := range streams {
		waitUntil(t, name+" is heard no more", func() bool {
			heard := func() (n int) {
				for _, sink := range tr.sinks {
					n += sink.Heard(name)
				}
				return n
			}
			before, sent := heard(), tr.streams[name].Sent()
			waitUntil(t, name+" goes on", func() bool { return tr.streams[name].Sent() >= sent+enough })
			return heard() == before
		})
	}
}

// entries returns the ids of the flows that the node tracks for streams.
func (tr *tracked) entries(t *testing.T) map[string]uint32 {
	t.Helper()
	ids := map[string]uint32{}
	err := tr.Node.Do(func() error {
		c, err := timo.Dial(nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		flows, err := c.Dump(nil)
		for _, f := range flows {
			ids[fmt.Sprintf("%v, answered by %v:%d", f.TupleOrig, f.TupleReply.IP.SourceAddress, f.TupleReply.Proto.SourcePort)] = f.ID
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// forEachTracker runs a test with each backend.
func forEachTracker(t *testing.T, test func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend)) {
	t.Helper()
	t.Parallel() // waiting for datagrams is most of the time
	for _, backend := range trackers {
		t.Run(backend.name, func(t *testing.T) {
			t.Parallel()
			test(t, backend.open)
		})
	}
}

// A sender that never pauses, and reads nothing, is sent to an endpoint that is there, by
// whatever address and family it sends to.
func TestUDPFlowsFollowTheEndpoints(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		client := tr.client(t, everywhere()...)
		// A pod's own, which is not masqueraded.
		pod := tr.Pods()[2]
		inside := tr.send(t, pod.Namespace, [2]string{pod.IP4.String(), pod.IP6.String()}, frontends(model.IPv4)[0], frontends(model.IPv6)[0])
		node := tr.send(t, tr.Node, [2]string{lab.NodeIP4, lab.NodeIP6}, frontends(model.IPv4)[0], frontends(model.IPv6)[0])
		streams := append(append(client, inside...), node...)

		tr.mustCease(t, streams)
		if len(tr.entries(t)) == 0 {
			t.Error("no flow is tracked before there is a Service: nothing is tested")
		}
		tr.set(append(webSlices([]int{1}), web())...)
		tr.mustArrive(t, "pod-1", streams)
		tr.set(webSlices([]int{2})...)
		tr.mustArrive(t, "pod-2", streams)
		tr.set(webSlices(nil)...)
		tr.mustCease(t, streams)
		tr.set(webSlices([]int{1})...)
		tr.mustArrive(t, "pod-1", streams)
		// Whoever has the pod's address then, is not to hear anything.
		tr.delete(web())
		tr.mustCease(t, streams)
		tr.set(web())
		tr.mustArrive(t, "pod-1", streams)
	})
}

// An endpoint that ends, but serves, keeps what it has, and so does everybody who has
// nothing to do with the change.
func TestOtherFlowsStay(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		tr := newTracked(t, open, 3)
		other := modeltest.NewService("default/other").On("172.30.0.99", "fd00:172:30::99").UDP("udp", 80)
		var pods, ending []modeltest.Object // of the other Service: pod-3, and then pod-2 in its place
		for _, f := range model.Families {
			s := modeltest.NewSlice("default/other-"+f.String(), "other").Typed(f.String()).UDP("udp", 8080)
			pods = append(pods, s.Endpoint(modeltest.Pod(f, 2).String()))
			ending = append(ending, s.Endpoint(modeltest.Pod(f, 2).String(), modeltest.Conditions(false, true, true)).Endpoint(modeltest.Pod(f, 1).String()))
		}
		tr.set(append(append(webSlices([]int{1}), web(), other), pods...)...)
		changing := tr.client(t, everywhere()...)
		tr.mustArrive(t, "pod-1", changing)

		addrs := func(list ...string) (addrs []netip.AddrPort) {
			for _, a := range list {
				addrs = append(addrs, netip.MustParseAddrPort(a))
			}
			return addrs
		}
		// By another Service, and straight to a pod.
		kept := tr.client(t, addrs("172.30.0.99:80", "[fd00:172:30::99]:80", "10.0.0.4:8080", "[fd00:10::4]:8080")...)
		direct := tr.client(t, addrs("10.0.0.2:8080", "[fd00:10::2]:8080")...)
		// To a server elsewhere, also on the port of a Service, and a node port's number.
		pod := tr.Pods()[2]
		out := map[uint16][]string{}
		sinks := map[uint16]*lab.Sink{}
		for _, port := range []uint16{53, 80, 30080} {
			sinks[port] = tr.sink(t, tr.Client, port)
			out[port] = tr.send(t, pod.Namespace, [2]string{pod.IP4.String(), pod.IP6.String()},
				netip.AddrPortFrom(netip.MustParseAddr(lab.ClientIP4), port), netip.AddrPortFrom(netip.MustParseAddr(lab.ClientIP6), port))
		}
		tr.mustHear(t, tr.sinks["pod-3"], kept)
		tr.mustHear(t, tr.sinks["pod-1"], direct)
		for port, streams := range out {
			tr.mustHear(t, sinks[port], streams)
		}
		// Their ports say which they are.
		others := func() map[string]uint32 {
			ids := tr.entries(t)
			maps.DeleteFunc(ids, func(entry string, _ uint32) bool {
				for i := range changing {
					if containsPort(entry, 20000+i) {
						return true
					}
				}
				return false
			})
			return ids
		}
		before := others()
		if want := len(kept) + len(direct) + 6; len(before) != want {
			t.Fatalf("%d flows of others, want %d: %v", len(before), want, before)
		}
		tr.set(append(webSlices([]int{2}), ending...)...)
		tr.mustArrive(t, "pod-2", changing)
		tr.set(webSlices(nil)...)
		tr.mustCease(t, changing)
		tr.delete(web())
		tr.set(append(webSlices([]int{1}), web())...)
		tr.mustArrive(t, "pod-1", changing)
		if diff := cmp.Diff(before, others()); diff != "" {
			t.Errorf("flows of others (-before +after):\n%s", diff)
		}
		tr.mustHear(t, tr.sinks["pod-3"], kept)
		tr.mustHear(t, tr.sinks["pod-1"], direct)
	})
}

// containsPort reports whether an entry is from a port.
func containsPort(entry string, port int) bool {
	return strings.Contains(entry, fmt.Sprintf(":%d, Dst", port))
}

// A connection over TCP ends by itself; it is ended only where the Service says so, and
// then the client is told.
func TestTCPConnectionsEndOnlyIfAsked(t *testing.T) {
	forEachTracker(t, func(t *testing.T, open func(*testing.T, *lab.Namespace) reconcile.Backend) {
		for _, graceful := range []bool{false, true} {
			t.Run(fmt.Sprintf("grace %v", graceful), func(t *testing.T) {
				tr := newTracked(t, open, 2, 8080)
				service := web()
				if graceful {
					service = service.ConnectionGrace("300ms")
				}
				tr.set(append(webSlices([]int{1}), service)...)
				var conns []*lab.Conn
				for _, to := range everywhere() {
					waitUntil(t, fmt.Sprintf("%v answers", to), func() bool {
						a, err := tr.Client.Ask(t.Context(), "tcp", to)
						return err == nil && a.Pod == "pod-1"
					})
					c, err := tr.Client.Dial(t.Context(), "tcp", to)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if a, err := c.Ask(t.Context()); err != nil || a.Pod != "pod-1" {
						t.Fatalf("%v, %v", a, err)
					}
					conns = append(conns, c)
				}
				tr.set(webSlices([]int{2})...)
				for i, to := range everywhere() {
					waitUntil(t, fmt.Sprintf("%v is answered by the other pod", to), func() bool {
						a, err := tr.Client.Ask(t.Context(), "tcp", to)
						return err == nil && a.Pod == "pod-2"
					})
					if graceful {
						continue
					}
					if a, err := conns[i].Ask(t.Context()); err != nil || a.Pod != "pod-1" {
						t.Errorf("%v: the connection to pod-1: %v, %v", to, a, err)
					}
				}
				if !graceful {
					return
				}
				for i, to := range everywhere() {
					var failure lab.Failure
					waitUntil(t, fmt.Sprintf("the connection to %v ends", to), func() bool {
						_, err := conns[i].Ask(t.Context())
						if err != nil {
							failure = lab.FailureOf(err)
						}
						return err != nil
					})
					if failure != lab.Reset {
						t.Errorf("%v: the connection ended as %s, want %s", to, failure, lab.Reset)
					}
				}
			})
		}
	})
}
