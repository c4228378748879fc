package kernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model"
)

func TestEachBatchIsObserved(t *testing.T) {
	n := newNetNS(t)
	var got []Commit
	b := openAs(t, Options{NetNS: n.fd(), Observe: func(c Commit) { got = append(got, c) }})
	builder := exampleBuilder()
	check := func(what string, want ...Commit) {
		t.Helper()
		got = nil
		apply(t, b, builder.Snapshot())
		ignored := cmpopts.IgnoreFields(Commit{}, "Operations", "Bytes", "Took")
		if diff := cmp.Diff(want, got, ignored, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		for _, c := range got {
			if c.Operations <= 0 || c.Bytes <= 0 || c.Took <= 0 {
				t.Errorf("%s: %+v lacks a figure", what, c)
			}
		}
	}
	check("at first", Commit{Family: model.IPv4, Full: true}, Commit{Family: model.IPv6, Full: true})
	cold := got[0]
	check("no change")
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	before := b.Stats(model.IPv4)
	check("a change", Commit{Family: model.IPv4})
	after := b.Stats(model.IPv4)
	if got[0].Operations > cold.Operations/2 || got[0].Bytes > cold.Bytes/2 {
		t.Errorf("one endpoint more was %+v, everything was %+v", got[0], cold)
	}
	want := Stats{Batches: 1, Operations: uint64(got[0].Operations), Bytes: uint64(got[0].Bytes)}
	have := Stats{
		Batches: after.Batches - before.Batches, Operations: after.Operations - before.Operations, Bytes: after.Bytes - before.Bytes,
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("stats of one batch (-observed +counted):\n%s", diff)
	}
	b.Resync()
	check("a comparison without difference")
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
