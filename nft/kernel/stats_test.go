package kernel

import (
	"testing"

	"github.com/vmapd/vmapd/model"
)

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
	if err := remove(b); err != nil {
		t.Fatal(err)
	}
	check("we removed it ourselves", 3)
	if got := b.Stats(model.IPv6).Repairs; got != 0 {
		t.Errorf("%d repairs of IPv6, want none", got)
	}
}
