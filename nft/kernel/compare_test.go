package kernel

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
)

// differences returns what differs in the kernel.
func differences(b *Backend, f model.Family, s *model.Snapshot) (*batch.Batch, error) {
	table, want, err := b.Table(f, s)
	if err != nil {
		return nil, err
	}
	return batch.DiffTable(table, want), nil
}

// Table tells what differs in the kernel, and changes nothing.
func TestCompare(t *testing.T) {
	n := newNetNS(t)
	b, s := openUnowned(t, n), exampleBuilder().Snapshot()
	if batch, err := differences(b, model.IPv4, s); err != nil || !batch.CreateTable {
		t.Fatalf("without a table: %v, %v", batch, err)
	}
	apply(t, b, s)
	for _, f := range model.Families {
		if batch, err := differences(b, f, s); err != nil || !batch.Empty() {
			t.Errorf("%v, after Apply: %v\n%v", f, err, batch)
		}
	}
	n.nft(t, "flush map ip vmapd service-ips\n", "-f", "-")
	batch, err := differences(b, model.IPv4, s)
	if err != nil || batch.Empty() || !strings.Contains(batch.String(), "service-ips") {
		t.Errorf("after a flush: %v\n%v", err, batch)
	}
	if batch, err := differences(b, model.IPv6, s); err != nil || !batch.Empty() {
		t.Errorf("the other family: %v\n%v", err, batch)
	}
	if again, err := differences(b, model.IPv4, s); err != nil || again.Len() != batch.Len() {
		t.Errorf("Compare changed something: %v, want %d operations, got %d", err, batch.Len(), again.Len())
	}
}

// A connection meets no elements of other Services: that theirs are missing is no difference for it. What all
// connections meet stays.
func TestDifferencesOfOneConnection(t *testing.T) {
	op := func(key string) nft.Element { return nft.Element{Key: key} }
	diff := &batch.Batch{
		SetChains: []nft.Chain{{Name: "services"}},
		Add:       []batch.Elements{{Set: "service-ips", List: []nft.Element{op("ours"), op("another's")}}, {Set: "endpoints", List: []nft.Element{op("another's")}}},
		Delete:    []batch.Elements{{Set: "endpoints", List: []nft.Element{op("ours"), op("another's")}}},
	}
	all := nft.Elements{"ours": op("ours")}
	keepOf(diff, &nft.Table{Elements: map[string]nft.Elements{"service-ips": all, "endpoints": all}})
	if n := diff.Len(); n != 3 || diff.Add[0].List[0].Key != "ours" || diff.Delete[0].List[0].Key != "ours" || len(diff.Add[1].List) > 0 {
		t.Errorf("%d operations: %+v", n, diff)
	}
}
