package nft_test

import (
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
