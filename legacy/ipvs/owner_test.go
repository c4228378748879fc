package ipvs_test

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Each virtual server has an owner, of whose own it is one.
func TestEachServerHasAnOwner(t *testing.T) {
	const seeds, steps = 20, 40
	seen := 0
	for seed := range uint64(seeds) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, steps)
		for f, state := range compile(nil, b.Snapshot(), ipvs.Options{}) {
			for k := range state.Content().Servers {
				name, ok := state.Owner(k)
				if !ok || !slices.Contains(state.Keys(name), k) {
					t.Errorf("seed %d: the owner of %v is %v (%v)", seed, k, name, ok)
				}
				seen++
			}
			k := ipvs.Key{Addr: model.Families[f].Unspecified(), Port: 1}
			if name, ok := state.Owner(k); ok {
				t.Errorf("seed %d: %v owns %v, which is not there", seed, name, k)
			}
		}
	}
	if seen == 0 {
		t.Error("nothing is tested")
	}
	none := ipvs.Compile(nil, modeltest.Snapshot(configs[0]).Family(model.IPv4), ipvs.Options{})
	if keys := none.Keys(modeltest.PortName("ns1/none", "", model.TCP)); keys != nil {
		t.Errorf("the virtual servers of a Service that does not exist: %v", keys)
	}
}
