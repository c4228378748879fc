package neighbours

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
)

var (
	rounds = flag.Int("rounds", 60, "the number of random clusters of TestNeighboursDoNotMeddle, of all backends "+
		"together")
	firstRound = flag.Int("first-round", 0, "the first of them, a multiple of 10; each number is another cluster")
	backends   = flag.String("backends", "",
		"backends of random clusters, by a part of their names; all of them without it")
)

// applier is a backend in a node's namespace.
type applier func(*model.Snapshot) error

type openPlane struct {
	name string
	open func(t *testing.T, node *lab.Namespace) applier
}

// planes are the backends that program a neighbourhood.
var planes = []openPlane{
	{"nftables", openNFTables},
	{"iptables-legacy", openIPTables("-legacy")},
	{"nftables", openNFTables}, // once more: the most used one
	{"iptables-nft", openIPTables("-nft")},
	{vmapdtest.ByIPVS, func(t *testing.T, node *lab.Namespace) applier {
		t.Helper()
		b := vmapdtest.OpenIPVS(t, node, slog.New(slog.DiscardHandler))
		return func(s *model.Snapshot) error { return node.Do(func() error { return b.Apply(t.Context(), s) }) }
	}},
}

func openNFTables(t *testing.T, node *lab.Namespace) applier {
	t.Helper()
	b := vmapdtest.OpenKernel(t, node, kernel.Options{})
	return func(s *model.Snapshot) error { return b.Apply(t.Context(), s) }
}

func openIPTables(variant string) func(*testing.T, *lab.Namespace) applier {
	return func(t *testing.T, node *lab.Namespace) applier {
		t.Helper()
		var b *host.IPTables
		inNode(t, node, func() (err error) {
			b, err = host.OpenIPTables(iptables.Options{}, slog.New(slog.DiscardHandler), variant)
			return err
		})
		return func(s *model.Snapshot) error { return node.Do(func() error { return b.Apply(t.Context(), s) }) }
	}
}

func inNode(t *testing.T, ns *lab.Namespace, do func() error) {
	t.Helper()
	if err := ns.Do(do); err != nil {
		t.Fatal(err)
	}
}

// neighbourhood is a node beside a foreign user of NAT, with one cluster after the other.
type neighbourhood struct {
	*vmapdtest.Plane
	by      openPlane
	foreign foreignUser
	counted map[string]int
	// Of the present cluster:
	memory  rememberedBy
	history []string // the connections that got an endpoint
}

// clustersPerNode is the number of rounds that a node serves. What an earlier cluster left behind
// must not decide about a connection to the present one.
const clustersPerNode = 10

// TestNeighboursDoNotMeddle compares random connections with modeltest.Memory.Decide: in clusters
// whose Services share addresses, port numbers and pods, beside a foreign user of NAT, and for
// clients that session affinity remembers. Each connection may decide about the next.
func TestNeighboursDoNotMeddle(t *testing.T) {
	t.Parallel()
	nettest.Need(t)
	chosen := slices.DeleteFunc(slices.Clone(planes), func(p openPlane) bool {
		// IPVS does otherwise with addresses of pods: package ipvs has its agreement with decisions at random.
		return p.name == vmapdtest.ByIPVS || !strings.Contains(p.name, *backends)
	})
	if len(chosen) == 0 || *firstRound%clustersPerNode != 0 {
		t.Fatalf("-backends=%s -first-round=%d: want a backend's name and a multiple of %d", *backends, *firstRound,
			clustersPerNode)
	}
	var mu sync.Mutex
	total := map[string]int{}
	t.Run("rounds", func(t *testing.T) {
		for first := *firstRound; first < *firstRound+*rounds; first += clustersPerNode {
			which := chosen[first/clustersPerNode%len(chosen)]
			t.Run(fmt.Sprintf("%d %s", first, which.name), func(t *testing.T) {
				t.Parallel() // waiting for silence is a part of the time
				counted := playRounds(t, first, min(first+clustersPerNode, *firstRound+*rounds), which)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range counted {
					total[what] += n
				}
			})
		}
	})
	t.Logf("%v", total)
	expected := []string{
		"forwarded", "forwarded, came back", "taken by the host port",
		"forwarded, may stay at its destination",
	}
	if *backends == "" {
		expected = append(expected, "chosen by a lookup table")
	}
	for _, what := range expected {
		if total[what] < *rounds/10 {
			t.Errorf("only %d connections in %d rounds: %s", total[what], *rounds, what)
		}
	}
}

// playRounds plays the clusters of some numbers, on one node. The node's number chooses the
// foreign user, and each cluster's number all else.
func playRounds(t *testing.T, first, end int, by openPlane) map[string]int {
	t.Helper()
	w := labtest.With(t, lab.Config{Pods: neighbourPods})
	foreign := randomLab{rand.New(rand.NewPCG(uint64(first), 14))}.foreignUser()
	n := neighbourhood{Plane: &vmapdtest.Plane{World: w}, by: by, foreign: foreign, counted: map[string]int{}}
	n.serveEverywhere(t)
	if foreign.first {
		foreign.setUp(t, w.Node)
	}
	apply := by.open(t, w.Node)
	for round := first; round < end && !t.Failed(); round++ {
		r := randomLab{rand.New(rand.NewPCG(uint64(round), 13))}
		s := n.cluster(r, round)
		if err := apply(s); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round == first && !foreign.first {
			foreign.setUp(t, w.Node)
		}
		n.counted["rounds of "+by.name]++
		n.connect(t, r, round, s)
		if err := w.Node.FlushConntrack(); err != nil { // ports come again
			t.Fatal(err)
		}
	}
	return n.counted
}

// cluster makes another cluster, of which nobody remembers anything.
func (n *neighbourhood) cluster(r randomLab, round int) *model.Snapshot {
	n.memory, n.history = rememberedBy{}, nil
	n.Builder = model.NewBuilder(r.config(round))
	for _, o := range r.sharing(round) {
		o.Set(n.Builder)
	}
	return n.Builder.Snapshot()
}

// connect makes the connections of a round, one after the other.
func (n *neighbourhood) connect(t *testing.T, r randomLab, round int, s *model.Snapshot) {
	t.Helper()
	const connections = 24
	clients, favourites := r.clients(n.World), r.favourites(s)
	var wait sync.WaitGroup
	defer wait.Wait()
	for i := range connections {
		from := choose(r, clients...)
		c := r.visit(s, favourites, from, n.foreign)
		d := n.memory.decide(s, c, n.by.name)
		toItself := c.Dest.Addr() == c.Source && !c.Node || // does not leave the pod
			n.foreign.takes(c) && from.from == n.Pods()[neighbourPods-1].Namespace // that program's hairpin
		if impossible(d) || toItself {
			n.counted["left out"]++
			continue
		}
		ask := func(timeout time.Duration) (lab.Answer, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return from.from.AskFrom(ctx, c.Source, c.Protocol.String(), c.Dest)
		}
		wrong := func(format string, args ...any) {
			t.Errorf("round %d, connection %d: %+v, beside %v\ndecided: %v, reason %d, targets %v; %s\nbefore:\n%s", round,
				i+1, c, n.foreign, d.Verdict, d.Why, d.Targets, fmt.Sprintf(format, args...), strings.Join(n.history, "\n"))
		}
		n.counted[d.Verdict.String()]++
		switch {
		case n.foreign.takes(c):
			n.counted["taken by the host port"]++
			want := fmt.Sprintf("%s:8080", n.Pods()[neighbourPods-1].Name())
			if a, err := ask(vmapdtest.Patience); err != nil || a.Pod != want {
				wrong("got answer %+v, error %v; want %s by the host port", a, err, want)
			}
		case d.Verdict == model.Forwarded:
			a, err := ask(vmapdtest.Patience)
			to, ok := n.target(d, a)
			if err != nil || !ok {
				wrong("got answer %+v, error %v", a, err)
				return // what is remembered is unknown now
			}
			if chosen := n.chosen(d, a); chosen != "" && n.by.name == "nftables" {
				if n.counted["chosen by a lookup table"]++; chosen != a.Pod {
					wrong("%s answered %v, but the table has %s", a.Pod, a.Source, chosen)
				}
			}
			n.note(c, d, to)
		case d.Verdict == model.Rejected:
			if a, err := ask(vmapdtest.Patience); err == nil || lab.FailureOf(err) != lab.Refused {
				wrong("got answer %+v, error %v", a, err)
			}
		case d.Verdict == model.Dropped:
			wait.Go(func() {
				if a, err := ask(vmapdtest.Silence); err == nil || lab.FailureOf(err) != lab.Timeout {
					wrong("got answer %+v, error %v", a, err)
				}
			})
		}
	}
}

// note remembers and counts a connection that got an endpoint.
func (n *neighbourhood) note(c model.Connection, d model.Decision, to model.Target) {
	if slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr == c.Dest }) {
		n.counted["forwarded, may stay at its destination"]++
	}
	if len(d.Targets) == 1 && d.Port.Count(d.TrafficPolicy) > 1 {
		n.counted["forwarded, came back"]++
	}
	n.memory.note(d, to)
	n.history = append(n.history, fmt.Sprintf("%v to %v/%v, %v, %v: %v", c.Source, c.Dest, c.Protocol, d.Port.Name,
		d.TrafficPolicy, to))
}

// target returns the target that answered, if the source that it saw is right.
func (n *neighbourhood) target(d model.Decision, a lab.Answer) (model.Target, bool) {
	for _, to := range d.Targets {
		if fmt.Sprintf("%s:%d", n.owner(to.Addr.Addr()), to.Addr.Port()) != a.Pod {
			continue
		}
		want := d.Source
		isPod := n.owner(to.Addr.Addr()) != n.Node.Name()
		if to.SNAT.Masquerade() || isPod && n.foreign.masquerades(d.Source) {
			want = netip.MustParseAddr([]string{lab.NodeIP4, lab.NodeIP6}[model.FamilyOf(d.Source)])
		}
		return to, a.Source.Addr() == want
	}
	return model.Target{}, false
}

// rememberedBy is what session affinity knows, as the backends have it.
type rememberedBy struct {
	memory modeltest.Memory
	// iptables: all endpoints that a client got; see docs/internals.md.
	clients map[visitor]bool
}

type visitor struct {
	client   netip.Addr
	port     model.ServicePortName
	endpoint netip.AddrPort
}

// decide returns the decision with the targets that a backend may choose.
func (m *rememberedBy) decide(s *model.Snapshot, c model.Connection, backend string) model.Decision {
	d := model.Decide(s, c)
	if d.Verdict != model.Forwarded || d.Port.Affinity == 0 {
		return d
	}
	if backend == "nftables" {
		return m.memory.Decide(s, c)
	}
	if back := slices.DeleteFunc(slices.Clone(d.Targets), func(t model.Target) bool {
		return !m.clients[visitor{d.Source, d.Port.Name, t.Addr}]
	}); len(back) > 0 {
		d.Targets = back
	}
	return d
}

func (m *rememberedBy) note(d model.Decision, to model.Target) {
	if m.clients == nil {
		m.clients = map[visitor]bool{}
	}
	m.memory = m.memory.After(d, to)
	m.clients[visitor{d.Source, d.Port.Name, to.Addr}] = true
}
