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

// The other maps of a table tell which slots its maps of endpoints can have.
func TestATableTellsTheSlotsOfItsEndpoints(t *testing.T) {
	told := map[string]int{}
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := modeltest.NewRandom(modeltest.Seed(seed))
			history(t, r, configs[seed%uint64(len(configs))], 15, func(_, want *nft.Ruleset, _ *model.FamilySnapshot) {
				table := tableOf(t, want)
				for _, set := range endpointMaps {
					keys := slices.Sorted(maps.Keys(unpack(table)[set]))
					delete(table.Elements, set)
					told[set] += len(keys)
					for frontend, most := range table.EndpointSlots(set) {
						for slot := range most {
							key := string(nft.AppendSlot([]byte(frontend), uint32(slot)))
							keys = slices.DeleteFunc(keys, func(k string) bool { return k == key })
						}
					}
					equal(t, "keys of "+set+" that are not told", 0, len(keys))
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

func TestATableTellsNoSlotsOfOtherSets(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/s").On("172.30.0.41").TCP("http", 80),
		modeltest.NewSlice("ns1/s-1", "s").TCP("http", 8080).Ready("10.0.0.1"))
	table := tableOf(t, nft.Compile(nil, b.Snapshot().Family(model.IPv4)))
	for _, set := range []string{nft.ServiceIPs, nft.ClusterIPs, "strange"} {
		for frontend, most := range table.EndpointSlots(set) {
			t.Errorf("%s: %d slots of %q", set, most, frontend)
		}
	}
}

// A set that an earlier version had under a name that now means another type is deleted. It is no
// reason to replace the table, with all clients that its maps remember.
func TestAnOldSetOfAnotherTypeIsDeleted(t *testing.T) {
	const old = "affinity-both-ns1/s/tcp/http" // now the name of a map
	b := modeltest.Builder(modeltest.Config(), modeltest.NewService("ns1/s").On("172.30.0.41").TCP("http", 80))
	want := nft.Compile(nil, b.Snapshot().Family(model.IPv4))
	table := tableOf(t, want)
	table.Sets = append(table.Sets, nft.Set{Name: old, Key: []nft.Type{nft.Addr, nft.Service}})
	batch := nft.DiffTable(table, want)
	if batch.DeleteTable {
		t.Error("the table is replaced")
	}
	equal(t, "deleted sets", []string{old}, batch.DeleteSets)
	equal(t, "operations", 1, batch.Len())
}
