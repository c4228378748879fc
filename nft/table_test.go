package nft_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

var endpointMaps = []string{nft.Endpoints, nft.LocalEndpoints, nft.NodePortEndpoints, nft.NodePortLocalEndpoints}

// The other maps of a table tell which keys its maps of endpoints have.
func TestATableTellsTheKeysOfItsEndpoints(t *testing.T) {
	told := map[string]int{}
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, configs[seed%uint64(len(configs))], 15, func(_, want *nft.Ruleset, _ *model.FamilySnapshot) {
				table := tableOf(t, want)
				for _, set := range endpointMaps {
					keys := slices.Sorted(maps.Keys(unpack(table)[set]))
					delete(table.Elements, set)
					n, tell := table.EndpointKeys(set)
					var got []string
					for key := range tell {
						got = append(got, string(key))
					}
					slices.Sort(got)
					equal(t, "keys of "+set, keys, got)
					equal(t, "number of keys of "+set, len(keys), n)
					told[set] += n
				}
			})
		})
	}
	for _, set := range endpointMaps {
		if told[set] == 0 {
			t.Errorf("this test shows nothing of %s", set)
		}
	}
}

func TestATableTellsNoKeysOfOtherSets(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/s").On("172.30.0.41").TCP("http", 80),
		modeltest.NewSlice("ns1/s-1", "s").TCP("http", 8080).Ready("10.0.0.1"))
	table := tableOf(t, nft.Compile(nil, b.Snapshot().Family(model.IPv4)))
	for _, set := range []string{nft.ServiceIPs, nft.ClusterIPs, "strange"} {
		n, tell := table.EndpointKeys(set)
		for key := range tell {
			t.Errorf("%s: key %q", set, key)
		}
		equal(t, "number of keys of "+set, 0, n)
	}
}
