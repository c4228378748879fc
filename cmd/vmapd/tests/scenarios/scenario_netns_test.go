package scenarios

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/manifest"
)

const (
	// minTries and maxTries bound the number of connections of a flow. Of three endpoints,
	// two stay unseen for 100 connections once in 10^17 runs.
	minTries, maxTries = 8, 100
)

// programs are the ways in which a scenario gets into the node's kernel.
var programs = []struct {
	name   string
	noHash bool   // maglev is a random choice: see the documentation of legacy/iptables
	short  string // the scenarios with -short, as words; "*": all; "": none, because others program the same
	load   func(t *testing.T, snapshot *model.Snapshot, node *lab.Namespace)
}{
	{"over netlink", false, "*", loadByNetlink},
	{"by iptables-legacy", true, "*", loadByIPTables("-legacy")},
	{"by iptables-nft", true, "", loadByIPTables("-nft")},
	// Each kind of frontend and of target; no rule of the fast path depends on a Service.
	{
		byFastPath, false, "cluster-ip dual-stack affinity external-policy-local hairpin load-balancer " +
			"masquerade-all node-port-all host-network source-ranges sctp drop-invalid", loadWithFastPath,
	},
	{vmapdtest.ByIPVS, false, "*", loadByIPVS},
}

func loadByIPTables(variant string) func(*testing.T, *model.Snapshot, *lab.Namespace) {
	return func(t *testing.T, snapshot *model.Snapshot, node *lab.Namespace) {
		t.Helper()
		err := node.Do(func() error { // the programs run in the namespace
			backend, err := host.OpenIPTables(iptables.Options{}, slog.New(slog.DiscardHandler), variant)
			if err != nil {
				return err
			}
			return backend.Apply(t.Context(), snapshot)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func loadByNetlink(t *testing.T, snapshot *model.Snapshot, node *lab.Namespace) {
	t.Helper()
	backend := vmapdtest.OpenKernel(t, node, kernel.Options{})
	if err := backend.Apply(t.Context(), snapshot); err != nil { // TestListings lists it
		t.Fatal(err)
	}
}

// TestScenariosForReal makes each flow's connections in a world of network namespaces.
func TestScenariosForReal(t *testing.T) {
	t.Parallel()
	nettest.Need(t)
	for _, s := range scenarios(t) {
		for _, p := range programs {
			t.Run(s.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && p.short != "*" && !slices.Contains(strings.Fields(p.short), s.name) {
					t.Skip("-short: others program the same")
				}
				if p.name == vmapdtest.ByIPVS {
					vmapdtest.NeedIPVS(t)
				}
				if p.name == byFastPath {
					vmapdtest.NeedFastPath(t)
				}
				snapshot, objects := s.load(t).Snapshot, s.load(t).Objects
				flows := s.flows(t)
				w := newWorld(t, objects, flows)
				if p.name == byFastPath {
					w.questions = manyQuestions
				}
				for i, f := range flows {
					d := model.Decide(snapshot, f.connection(w.nodeAddrs))
					if p.noHash && d.Port != nil && d.Port.Algorithm == model.Maglev {
						flows[i].tries = ""
					}
					if !p.noHash && p.name != vmapdtest.ByIPVS {
						flows[i].decided = d
					}
					if p.name == vmapdtest.ByIPVS && f.tries == same {
						flows[i].tries = sticky // frontends are independent: see docs/internals.md
					}
				}
				p.load(t, snapshot, w.Node)
				heard := listen(t, w, flows)
				var last string
				for _, f := range flows {
					t.Run(f.text, func(t *testing.T) {
						if p.name == vmapdtest.ByIPVS {
							skipDifferences(t, f, snapshot, w.nodeAddrs)
						}
						last = f.connect(t, w, heard[f.line], last)
					})
				}
			})
		}
	}
}

// world is the lab with the addresses that a scenario's node has.
type world struct {
	*lab.World
	nodeAddrs []netip.Addr
	questions int // asked on each connection
}

// newWorld builds a world with a server for each endpoint of the flows. A server answers with
// its address and port, so that a wrong port fails the test, too.
func newWorld(t *testing.T, objects *manifest.Objects, flows []flow) *world {
	t.Helper()
	made := labtest.With(t, lab.Config{Pods: podCount})
	w := &world{made, nodeAddrs(objects), 1}
	vmapdtest.WithoutICMPLimits(t, w.Node)
	for _, a := range w.nodeAddrs {
		if primary := a.String(); primary != lab.NodeIP4 && primary != lab.NodeIP6 {
			if err := w.Node.AddAlias(lab.UplinkName, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	serving := map[string]bool{}
	serve := func(addr netip.AddrPort) {
		ns := w.at(addr.Addr())
		if ns == nil {
			t.Fatalf("%v is nobody's address in this world", addr.Addr())
		}
		name := serverName(ns, addr)
		if serving[name] {
			return
		}
		serving[name] = true
		server, err := ns.Serve(name, addr.Port())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Close)
	}
	for _, f := range flows {
		for _, e := range f.endpoints {
			serve(e.addr)
		}
		if f.want == "elsewhere" && !f.silent(w) {
			serve(f.dest) // the destination itself
		}
	}
	return w
}

func serverName(ns *lab.Namespace, addr netip.AddrPort) string {
	return fmt.Sprintf("%s:%d", ns.Name(), addr.Port())
}

// namespace returns the network namespace of an origin.
func (w *world) namespace(o origin) *lab.Namespace {
	switch o.kind {
	case fromNode:
		return w.Node
	case fromOutside:
		return w.Client
	case fromPod:
	}
	return w.Pods()[o.number-1].Namespace
}

// at returns the namespace that has an address, or nil.
func (w *world) at(a netip.Addr) *lab.Namespace {
	if a.IsLoopback() || slices.Contains(w.nodeAddrs, a) {
		return w.Node
	}
	for _, p := range w.Pods() {
		if a == p.IP4 || a == p.IP6 {
			return p.Namespace
		}
	}
	return nil
}

// An ask is the outcome of one connection.
type ask struct {
	answer lab.Answer
	err    error
}

// ask makes one of the flow's connections.
func (f flow) ask(ctx context.Context, w *world, timeout time.Duration) ask {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var source netip.Addr // as the kernel chooses
	if f.from.kind == fromOutside && f.from.number == 2 {
		source = f.from.addr(f.family())
	}
	if w.questions > 1 {
		return askAgain(ctx, w.namespace(f.from), source, f.protocol.String(), f.dest, w.questions)
	}
	a, err := w.namespace(f.from).AskFrom(ctx, source, f.protocol.String(), f.dest)
	return ask{a, err}
}

// silent reports whether the client will get no answer at all.
func (f flow) silent(w *world) bool {
	return f.want == "drop" || f.want == "elsewhere" && w.at(f.dest.Addr()) == nil
}

// listen makes the connections of all silent flows at once, because waiting takes most of
// the time. It returns channels of the outcomes, by line.
func listen(t *testing.T, w *world, flows []flow) map[int]chan ask {
	t.Helper()
	heard := map[int]chan ask{}
	for _, f := range flows {
		if !f.silent(w) || f.protocol == model.SCTP {
			continue
		}
		c := make(chan ask, 1)
		heard[f.line] = c
		go func() { c <- f.ask(t.Context(), w, vmapdtest.Silence) }()
	}
	return heard
}

// connect makes a flow's connections and checks their outcomes. It returns the endpoint that
// answered a sticky client; last is the endpoint of the flow above.
func (f flow) connect(t *testing.T, w *world, heard <-chan ask, last string) string {
	t.Helper()
	if f.protocol == model.SCTP {
		t.Skip("SCTP: no program here speaks it")
	}
	switch f.want {
	case "reject":
		for range minTries {
			a := f.ask(t.Context(), w, vmapdtest.Patience)
			if a.err == nil || lab.FailureOf(a.err) != lab.Refused {
				t.Fatalf("want %s, got answer %+v, error %v", lab.Refused, a.answer, a.err)
			}
		}
	case "drop":
		if a := <-heard; a.err == nil || lab.FailureOf(a.err) != lab.Timeout {
			t.Fatalf("want %s, got answer %+v, error %v", lab.Timeout, a.answer, a.err)
		}
	case "elsewhere":
		f.connectElsewhere(t, w, heard)
	default:
		return f.connectEndpoints(t, w, last)
	}
	return ""
}

// connectElsewhere checks that the destination itself answers, or nobody if it does not exist.
func (f flow) connectElsewhere(t *testing.T, w *world, heard <-chan ask) {
	t.Helper()
	if f.silent(w) {
		if a := <-heard; a.err == nil {
			t.Errorf("nobody has this address and port, but %+v answered", a.answer)
		}
		return
	}
	a := f.ask(t.Context(), w, vmapdtest.Patience)
	if a.err != nil {
		t.Fatal(a.err)
	}
	want := serverName(w.at(f.dest.Addr()), f.dest)
	if a.answer.Pod != want || a.answer.Source.Addr() != f.source(w.nodeAddrs) {
		t.Errorf("got %+v, want an answer of %s, which sees the source as it is", a.answer, want)
	}
}

// connectEndpoints connects until each endpoint has answered. It checks that no other server
// answers, that each sees the right source, and that a sticky client gets only one endpoint.
func (f flow) connectEndpoints(t *testing.T, w *world, last string) string {
	t.Helper()
	sources := map[string]netip.Addr{} // that each endpoint must see
	var missing []string
	for _, e := range f.endpoints {
		name := serverName(w.at(e.addr.Addr()), e.addr)
		missing = append(missing, name)
		sources[name] = f.source(w.nodeAddrs)
		if e.masquerade {
			sources[name] = origin{kind: fromNode}.addr(f.family())
		}
	}
	if f.tries == sticky || f.tries == same {
		missing = nil
	}
	var answered []string
	for try := 1; try <= minTries || len(missing) > 0; try++ {
		if try > maxTries {
			t.Fatalf("%v did not answer in %d tries", missing, maxTries)
		}
		a := f.ask(t.Context(), w, vmapdtest.Patience)
		if a.err != nil {
			t.Fatalf("try %d: %v", try, a.err)
		}
		name := a.answer.Pod
		source, ok := sources[name]
		if !ok {
			t.Fatalf("try %d: %s answered, which is none of the endpoints", try, name)
		}
		if a.answer.Source.Addr() != source {
			t.Errorf("try %d: %s saw the source %v, want %v", try, name, a.answer.Source.Addr(), source)
		}
		if chosen := f.chosen(a.answer); chosen.IsValid() && name != serverName(w.at(chosen.Addr()), chosen) {
			t.Errorf("try %d: %s answered %v, but the lookup table has %v", try, name, a.answer.Source, chosen)
		}
		answered = append(answered, name)
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
	}
	if err := f.checkTries(answered, last); err != nil {
		t.Error(err)
	}
	return answered[0]
}

// chosen returns who must have answered, if a lookup table says so. The endpoint sees the client's port only if nothing
// masquerades.
func (f flow) chosen(a lab.Answer) netip.AddrPort {
	d := f.decided
	if a.Source.Addr() == d.Source && len(d.Targets) > 0 && !d.Targets[0].SNAT.Masquerade() {
		d.SourcePort = a.Source.Port()
	}
	t, _ := d.Chosen()
	return t.Addr
}

// checkTries checks the endpoints that one client got, in their order.
func (f flow) checkTries(answered []string, last string) error {
	for i, name := range answered {
		if f.tries == same && name != last || f.tries == sticky && name != answered[0] {
			return fmt.Errorf("not %s: try %d got %s; all tries: %v, the flow above: %s", f.tries, i+1, name, answered, last)
		}
	}
	return nil
}
