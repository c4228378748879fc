package compile_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

func text(f model.Family, set string, e nft.Element) string {
	declared := nft.DeclarationOf(set)
	return declared.Text(f, e)
}

func bothTexts(s *model.Snapshot) string {
	return compile.Options{}.Compile(nil, s.Family(model.IPv4)).Table().String() + compile.Options{}.Compile(nil, s.Family(model.IPv6)).Table().String()
}

func TestTextOfADualStackService(t *testing.T) {
	testaid.Golden(t, "testdata/dual-stack.nft", bothTexts(modeltest.DualStack().Snapshot()))
}

func TestTextWithCounters(t *testing.T) {
	o := compile.Options{Counters: true}
	testaid.Golden(t, "testdata/counters.nft", o.Compile(nil, modeltest.DualStack().Snapshot().Family(model.IPv4)).Table().String())
}

func TestTextWithTheFastPath(t *testing.T) {
	o := compile.Options{FastPath: true}
	testaid.Golden(t, "testdata/fast-path.nft", o.Compile(nil, modeltest.DualStack().Snapshot().Family(model.IPv4)).Table().String())
}

func TestRanges(t *testing.T) {
	for _, tt := range []struct{ cidr, want string }{
		{"172.30.0.0/16", "172.30.0.0/16"},
		{"172.30.0.1/32", "172.30.0.1/32"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"0.0.0.0/1", "0.0.0.0/1"},
		{"128.0.0.0/1", "128.0.0.0/1"},
		// Behind these there is no address: the range has an open end.
		{"255.255.0.0/16", "255.255.0.0/16"},
		{"255.255.255.255/32", "255.255.255.255/32"},
		{"fd00:172:30::/112", "fd00:172:30::/112"},
		{"::/0", "::/0"},
		{"ffff::/16", "ffff::/16"},
	} {
		t.Run(tt.cidr, func(t *testing.T) {
			p := netip.MustParsePrefix(tt.cidr)
			s := modeltest.Snapshot(modeltest.Config(), modeltest.NewServiceCIDR("x", tt.cidr)).Family(model.FamilyOf(p.Addr()))
			got := []string{}
			add := func(set string, e nft.Element) {
				got = append(got, text(s.Family, set, e))
				last := p.Addr()
				for i := p.Bits(); i < last.BitLen(); i++ {
					b := last.AsSlice()
					b[i/8] |= 0x80 >> (i % 8)
					last, _ = netip.AddrFromSlice(b)
				}
				end := ""
				if next := last.Next(); next.IsValid() {
					end = string(nft.AppendAddr(nil, next))
				}
				testaid.Equal(t, "first key behind the range", end, e.End)
			}
			for unit := range (compile.Options{}).Compile(nil, s).Units() {
				unit.Elements(add)
			}
			testaid.Equal(t, "elements", []string{tt.want}, got)
		})
	}

	t.Run("what is no prefix is written as a range", func(t *testing.T) {
		key := func(s string) string { return string(nft.AppendAddr(nil, netip.MustParseAddr(s))) }
		testaid.Equal(t, "between", "172.30.0.1-172.30.0.5",
			text(model.IPv4, nft.ServiceCIDRs, nft.Element{Key: key("172.30.0.1"), End: key("172.30.0.6")}))
		testaid.Equal(t, "to the end", "172.30.0.1-255.255.255.255", text(model.IPv4, nft.ServiceCIDRs, nft.Element{Key: key("172.30.0.1")}))
	})
}
