package kernel

import (
	"testing"

	"github.com/vmapd/vmapd/model"
)

func TestBatchesAreCounted(t *testing.T) {
	b := openAs(t, Options{NetNS: newNetNS(t).fd()})
	builder := exampleBuilder()
	last := Stats{}
	since := func() (now Stats) {
		all := b.Stats(model.IPv4)
		now = Stats{Batches: all.Batches - last.Batches, Operations: all.Operations - last.Operations, Bytes: all.Bytes - last.Bytes}
		last = all
		return now
	}
	apply(t, b, builder.Snapshot())
	cold := since()
	if cold.Batches != 1 || cold.Operations == 0 || cold.Bytes == 0 {
		t.Errorf("at first: %+v", cold)
	}
	apply(t, b, builder.Snapshot())
	b.Resync()
	apply(t, b, builder.Snapshot())
	if got := since(); got != (Stats{}) {
		t.Errorf("without a change, and a comparison without a difference: %+v", got)
	}
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	apply(t, b, builder.Snapshot())
	if got := since(); got.Batches != 1 || got.Operations == 0 || got.Operations > cold.Operations/2 || got.Bytes > cold.Bytes/2 {
		t.Errorf("one endpoint more was %+v, everything was %+v", got, cold)
	}
}

func TestRepairsAreCounted(t *testing.T) {
	n := newNetNS(t)
	b := openUnowned(t, n)
	builder := exampleBuilder()
	check := func(what string, want uint64) {
		t.Helper()
		apply(t, b, builder.Snapshot())
		if got := b.Stats(model.IPv4).Repairs; got != want {
			t.Errorf("%s: %d repairs, want %d", what, got, want)
		}
	}
	disturb := func() { n.nft(t, "", "delete", "element", "ip", "vmapd", "cluster-ips", "{ 172.30.0.41 }") }
	check("at first", 0)
	b.Resync()
	check("nobody changed anything", 0)
	disturb()
	check("nobody knows", 0)
	b.Resync()
	check("an element was gone", 1)
	n.nft(t, "", "delete", "table", "ip", "vmapd")
	b.Resync()
	check("the table was gone", 2)
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	b.Resync()
	check("a change of our own", 2)
	disturb()
	b.Resync()
	check("an element was gone again", 3)
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("we removed it ourselves", 3)
	if got := b.Stats(model.IPv6).Repairs; got != 0 {
		t.Errorf("%d repairs of IPv6, want none", got)
	}
}
