package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The kernel has a chain that counts, while a Service asks for it, and what it has counted is read.
func TestUnanswered(t *testing.T) {
	n := newNetNS(t)
	b := openAs(t, Options{NetNS: n.fd(), Unowned: true})
	read := func() []model.Attempt {
		t.Helper()
		list, err := b.Unanswered(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(a, b model.Attempt) int { return a.Endpoint.Compare(b.Endpoint) })
		return list
	}
	if list := read(); len(list) > 0 {
		t.Errorf("without a table, there are %v", list)
	}
	web := modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").TCP("http", 80)
	objects := []modeltest.Object{
		modeltest.OurNode(), web.Annotated(model.AnnotationOutlierDetection, "true"),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).Ready("10.0.0.2"),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Ready("fd00:10::2"),
	}
	builder := modeltest.Builder(modeltest.Config(), objects...)
	apply(t, b, builder.Snapshot())
	for _, family := range []string{"ip", "ip6"} {
		chain := n.nft(t, "", "list", "chain", family, "vmapd", "postrouting-unanswered")
		want := "ct state new ct status confirmed ct status dnat update @unanswered { " +
			family + " daddr . tcp dport . " + family + " saddr counter }"
		if !strings.Contains(chain, want) {
			t.Errorf("nft lists\n%s\nwant the rule %s", chain, want)
		}
	}
	n.nft(t, "", "add", "element", "ip", "vmapd", "unanswered", "{ 10.0.0.2 . 8080 . 203.0.113.9 counter packets 3 bytes 180 }")
	n.nft(t, "", "add", "element", "ip6", "vmapd", "unanswered", "{ fd00:10::2 . 8080 . 2001:db8::9 counter packets 2 bytes 160 }")
	want := []model.Attempt{
		{Endpoint: netip.MustParseAddrPort("10.0.0.2:8080"), Client: netip.MustParseAddr("203.0.113.9"), Packets: 3},
		{Endpoint: netip.MustParseAddrPort("[fd00:10::2]:8080"), Client: netip.MustParseAddr("2001:db8::9"), Packets: 2},
	}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	web.Set(builder)
	apply(t, b, builder.Snapshot())
	if text := n.nft(t, "", "list", "ruleset"); strings.Contains(text, "postrouting-unanswered") {
		t.Error("the chain is still there")
	}
}
