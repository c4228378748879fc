package nft_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// A tenant chooses the name of a namespace. It must not look like the beginning of another
// set's name: the set both-x/… of a Service in x was once that of a Service in both-x.
func TestNoNamespaceMixesUpSetsOfAffinity(t *testing.T) {
	objects := []modeltest.Object{modeltest.OurNode()}
	for i, ns := range []string{"x", "own-endpoints-x", "local-x", "affinity-x", "local-own-endpoints-x", "endpoints-x", "local-affinity-x", "remember-x"} {
		name := ns + "/web"
		objects = append(
			objects,
			modeltest.NewService(name).Typed("LoadBalancer").On("172.30.0."+string(rune('1'+i))).TCP("http", 80).
				LoadBalancer("192.168.98."+string(rune('1'+i))).Policies("Cluster", "Local").Sticky(60),
			modeltest.NewSlice(name+"-1", name).TCP("http", 8080).Local("10.0.0.2"),
		)
	}
	s := modeltest.Snapshot(modeltest.Config(), objects...).Family(model.IPv4)
	r := nft.Compile(nil, s)
	seen := map[string]bool{}
	for _, set := range r.AllSets() {
		if seen[set.Name] {
			t.Errorf("set %s: declared twice", set.Name)
		}
		seen[set.Name] = true
	}
	if _, err := nftsim.New(r, s.NodeAddrs...); err != nil {
		t.Error(err)
	}
}

// The batch that takes an endpoint from a service port with affinity watches connections to it. An
// endpoint that the service port has is no such endpoint, whatever is in the set: it may be back, or
// gone from another service port.
func TestAGoneEndpointIsWatched(t *testing.T) {
	service := modeltest.NewService("ns1/web").Typed("LoadBalancer").On("172.30.0.41").LoadBalancer("192.168.98.41").
		Policies("Cluster", "Local").Sticky(60).TCP("http", 80).UDP("dns", 53)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8053)
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), service, slice.Local("10.0.0.2", "10.0.0.3"))
	have := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
	added := func(batch *nft.Batch, r *nft.Ruleset) []string {
		got := map[string]bool{}
		for _, s := range batch.Add {
			if s.Set == nft.GoneEndpoints {
				for _, op := range s.Ops {
					got[text(r, s.Set, op.Element)] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(got))
	}

	modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8053).Local("10.0.0.2").Set(b)
	s := b.Snapshot().Family(model.IPv4)
	now := nft.Compile(have, s)
	want := []string{"10.0.0.3 . tcp . 8080", "10.0.0.3 . udp . 8053"}
	equal(t, "watched", want, added(nft.Diff(have, now), now))
	equal(t, "watched by another process", want, added(nft.DiffTable(tableOf(t, have), now), now))
	batch := nft.Diff(have, now)
	batch.Forgotten()
	equal(t, "watched when its clients are forgotten", want[:1], added(batch, now))
	batch.KeepClients()
	equal(t, "watched when they are not, after all", want, added(batch, now))
	equal(t, "watched when it comes", []string(nil), added(nft.Diff(now, have), have))

	for _, chain := range now.AllChains() {
		if chain.Name != "remember-ns1/web/tcp/http" {
			continue
		}
		last := chain.Rules[len(chain.Rules)-1]
		equal(t, "the rule", "meta l4proto tcp ip daddr . meta l4proto . th dport @gone-endpoints ip daddr . th dport != @own-endpoints-ns1/web/tcp/http "+
			"ip daddr . th dport != @local-own-endpoints-ns1/web/tcp/http drop", last.Text(model.IPv4))
		return
	}
	t.Error("no chain remembers clients")
}

// A process that ended too soon may have left clients of endpoints that were gone before: these go ahead of all else, and not only
// behind all other changes. A client whose endpoint the batch takes away goes with it, and not sooner: a packet would note
// it again.
func TestClientsThatWereLeftGoFirst(t *testing.T) {
	objects := func(pods ...string) *model.FamilySnapshot {
		return modeltest.Snapshot(
			modeltest.Config(), modeltest.OurNode(),
			modeltest.NewService("ns1/web").On("172.30.0.41").Sticky(60).TCP("http", 80),
			modeltest.NewService("ns1/other").On("172.30.0.42").Sticky(60).TCP("http", 80),
			modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready(pods...),
		).Family(model.IPv4)
	}
	have := nft.Compile(nil, objects("10.0.0.2", "10.0.0.3"))
	now := nft.Compile(have, objects("10.0.0.2"))
	client := func(pod byte) nft.Element {
		return nft.Element{Key: string([]byte{203, 0, 113, pod}), Data: string(nft.AppendPort([]byte{10, 0, 0, pod}, 8080))}
	}
	for _, size := range []int{1, 1000} {
		batch := nft.DiffTable(tableOf(t, have), now)
		taken, found := batch.Ending()
		if len(taken) != 1 || taken[0].Map != "affinity-ns1/web/tcp/http" || len(found) != 1 || found[0].Map != "affinity-ns1/other/tcp/http" {
			t.Fatalf("maps from which an endpoint goes: %v; others that were there: %v", taken, found)
		}
		batch.Forget(taken[0], []nft.Element{client(9), client(3)})
		batch.Forget(found[0], []nft.Element{client(8)})
		var got []string
		for i, piece := range slices.Collect(batch.Split(size)) {
			for _, op := range flat(piece.Delete) {
				if kind, _, _ := strings.Cut(op.Set, "-"); kind == "affinity" || kind == "own" {
					got = append(got, fmt.Sprintf("%d %s %s", min(i, 2), op.Set, text(now, op.Set, op.Element)))
				}
			}
		}
		equal(t, "deletions, with the number of the piece", []string{
			"0 affinity-ns1/web/tcp/http 203.0.113.9 : 10.0.0.9 . 8080",
			"1 affinity-ns1/other/tcp/http 203.0.113.8 : 10.0.0.8 . 8080",
			"2 own-endpoints-ns1/web/tcp/http 10.0.0.3 . 8080",
			"2 affinity-ns1/web/tcp/http 203.0.113.3 : 10.0.0.3 . 8080",
		}, got)
	}
	if taken, found := nft.Diff(have, now).Ending(); len(taken) != 1 || len(found) != 0 {
		t.Errorf("without a comparison, maps from which an endpoint goes: %v; others: %v", taken, found)
	}
}

// Whether an external IP is an address of the node may change after its Service was compiled.
func TestAnExternalIPThatTheNodeGetsHasNoMemory(t *testing.T) {
	b := modeltest.Builder(
		modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.99.41").TCP("http", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2"),
	)
	have := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
	for _, tt := range []struct {
		addr string
		want []string
	}{
		{"192.168.99.41", []string{"192.168.99.41 . tcp . 80 : return"}},
		{modeltest.NodeIP4, nil},
	} {
		modeltest.NewNode(modeltest.NodeName, tt.addr).Set(b)
		now := nft.Compile(have, b.Snapshot().Family(model.IPv4))
		checkApplied(t, have, nft.Diff(have, now), now)
		var got []string
		for set, e := range now.Elements() {
			if set == nft.RememberIPs {
				got = append(got, text(now, set, e))
			}
		}
		equal(t, "without memory where the node has "+tt.addr, tt.want, got)
		have = now
	}
}
