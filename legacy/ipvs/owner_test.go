package ipvs_test

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Each virtual server has an owner with a frontend of that port.
func TestEachServerHasAnOwner(t *testing.T) {
	const seeds, steps = 20, 40
	seen := 0
	for seed := range uint64(seeds) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, steps)
		s := b.Snapshot()
		for f, state := range compile(states{}, s, ipvs.Options{}) {
			for k := range state.Content().Servers {
				name, ok := state.Owner(k)
				sp, there := s.Family(model.Families[f]).ServicePort(name)
				owns := func(fe model.Frontend) bool { return fe.VIP.Protocol == k.Protocol && fe.VIP.Port == k.Port }
				if !ok || !there || !slices.ContainsFunc(sp.Frontends, owns) {
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
}
