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
	for i, ns := range []string{"x", "both-x", "local-x", "affinity-x", "both-affinity-x", "local-affinity-x"} {
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
