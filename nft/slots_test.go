package nft_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Whatever is in a map of endpoints is found again, whether or not we would write it.
func TestATableHasWhatIsAddedToSlots(t *testing.T) {
	frontend := string(nft.AppendPort(nft.AppendProto(nft.AppendAddr(nil, netip.MustParseAddr("10.0.0.1")), model.TCP), 80))
	slot := func(n uint32, data string) nft.Element {
		return nft.Element{Key: string(nft.AppendSlot([]byte(frontend), n)), Data: data}
	}
	pod := string(nft.AppendPort(nft.AppendAddr(nil, netip.MustParseAddr("10.244.0.1")), 8080))
	commented := slot(4, pod)
	commented.Comment = "another program's"
	want := map[string]nft.Element{}
	table := &nft.Table{
		Elements: map[string]nft.Elements{nft.Endpoints: {}},
		Slots:    map[string]*nft.Slots{nft.Endpoints: nft.NewSlots(model.IPv4, nft.DeclarationOf(nft.Endpoints))},
	}
	for _, e := range []nft.Element{
		slot(3, pod), slot(0, pod), slot(1, "\x00\x00\x00\x00\x00\x00\x00\x00"), commented, slot(1<<31, pod),
		slot(5, "short"),
		{Key: "x", Data: pod},
		{Data: pod},
	} {
		want[e.Key] = e
		table.Add(nft.Endpoints, e)
		table.Add(nft.Endpoints, e)
	}
	got := map[string]nft.Element{}
	for key := range table.Keys(nft.Endpoints) {
		op, _ := table.Get(nft.Endpoints, key)
		got[key] = op
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("elements (-want +got):\n%s", diff)
	}
	if table.Len(nft.Endpoints) != len(want) {
		t.Errorf("it has %d of %d elements", table.Len(nft.Endpoints), len(want))
	}
	for key := range maps.Keys(want) {
		if _, ok := table.Get(nft.ServiceIPs, key); ok {
			t.Errorf("%q is in another map, too", key)
		}
	}
	if _, ok := table.Get(nft.Endpoints, slot(2, "").Key); ok {
		t.Error("an empty slot has an endpoint")
	}
}
