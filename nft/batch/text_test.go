package batch_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// dualStack has each kind of frontend once, and a set of each kind that is not empty.
func dualStack() *model.Builder {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	return modeltest.Builder(config,
		modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "255.255.0.0/16", "fd00:172:30::/112"),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").
			LoadBalancer("192.168.98.11", "fd00:192:168:98::b").External("192.168.99.11", "fd00:192:168:99::b").
			TCP("http", 80).NodePort(30001).UDP("dns", 53),
		modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 5353).Local("10.0.0.2").Ready("10.0.0.3"),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).UDP("dns", 5353).Ready("fd00:10::2"))
}

func bothTexts(s *model.Snapshot) string {
	return compile.Options{}.Compile(nil, s.Family(model.IPv4)).Table().String() + compile.Options{}.Compile(nil, s.Family(model.IPv6)).Table().String()
}

func TestTextOfADualStackService(t *testing.T) {
	testaid.Golden(t, "testdata/dual-stack.nft", bothTexts(dualStack().Snapshot()))
}

func TestTextWithCounters(t *testing.T) {
	o := compile.Options{Counters: true}
	testaid.Golden(t, "testdata/counters.nft", o.Compile(nil, dualStack().Snapshot().Family(model.IPv4)).Table().String())
}

func TestTextWithTheFastPath(t *testing.T) {
	o := compile.Options{FastPath: true}
	testaid.Golden(t, "testdata/fast-path.nft", o.Compile(nil, dualStack().Snapshot().Family(model.IPv4)).Table().String())
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
			r := compile.Options{}.Compile(nil, s)
			got := []string{}
			each(r, func(set string, e nft.Element) {
				got = append(got, text(r, set, e))
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
				equal(t, "first key behind the range", end, e.End)
			})
			equal(t, "elements", []string{tt.want}, got)
		})
	}

	t.Run("what is no prefix is written as a range", func(t *testing.T) {
		r := compile.Options{}.Compile(nil, modeltest.Snapshot(modeltest.Config()).Family(model.IPv4))
		key := func(s string) string { return string(nft.AppendAddr(nil, netip.MustParseAddr(s))) }
		equal(t, "between", "172.30.0.1-172.30.0.5",
			text(r, nft.ServiceCIDRs, nft.Element{Key: key("172.30.0.1"), End: key("172.30.0.6")}))
		equal(t, "to the end", "172.30.0.1-255.255.255.255", text(r, nft.ServiceCIDRs, nft.Element{Key: key("172.30.0.1")}))
	})
}

// load runs scripts one after another in a network namespace of their own, and returns
// what nft lists then.
func load(t *testing.T, scripts ...string) string {
	t.Helper()
	for _, tool := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			nettest.Missing(t, tool)
		}
	}
	commands := "set -e\n"
	for i, s := range scripts {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.nft", i))
		testaid.Write(t, path, s)
		commands += "nft -f " + path + "\n"
	}
	out, err := exec.Command("unshare", "-rn", "sh", "-c", commands+"nft list ruleset\n").CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "unshare:") {
			nettest.Missing(t, string(out))
		}
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A batch as text does what the batch does.
func TestTheTextOfABatchLoads(t *testing.T) {
	b := dualStack()
	have := b.Snapshot()
	for _, o := range []modeltest.Object{
		modeltest.NewService("ns1/new").On("172.30.0.43", "fd00:172:30::2b").TCP("", 80).NodePort(30002),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 5353).Local("10.0.0.4").Ready("10.0.0.3", "10.0.0.5"),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/15", "fd00:172:30::/112"),
		modeltest.NewNode("node-1", "192.168.0.3", modeltest.NodeIP6),
	} {
		o.Set(b)
	}
	b.DeleteService(modeltest.Name("ns1/empty"))
	now := b.Snapshot()
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			before := compile.Options{}.Compile(nil, have.Family(f))
			after := compile.Options{}.Compile(before, now.Family(f))
			want := strings.Split(load(t, after.Table().String()), "\n")
			fromNothing := batch.DiffTable(nil, after)
			equal(t, "listing after the difference to nothing", sorted(want), sorted(strings.Split(load(t, fromNothing.String()), "\n")))
			got := strings.Split(load(t, before.Table().String(), batch.Diff(before, after).String()), "\n")
			equal(t, "listing after the difference", sorted(want), sorted(got))
		})
	}

	for _, tt := range []struct{ before, after compile.Options }{
		{compile.Options{}, compile.Options{Counters: true}},
		{compile.Options{Counters: true}, compile.Options{}},
	} {
		t.Run(fmt.Sprintf("counters %v, then %v", tt.before.Counters, tt.after.Counters), func(t *testing.T) {
			before := tt.before.Compile(nil, have.Family(model.IPv4))
			after := tt.after.Adopt(tableOf(t, before), nil, now.Family(model.IPv4))
			want := sorted(strings.Split(load(t, after.Table().String()), "\n"))
			got := load(t, before.Table().String(), batch.DiffTable(tableOf(t, before), after).String())
			equal(t, "listing after the restart", want, sorted(strings.Split(got, "\n")))
		})
	}

	t.Run("a table of another layout", func(t *testing.T) {
		r := compile.Options{}.Compile(nil, have.Family(model.IPv4))
		table := &nft.Table{Family: model.IPv4, Sets: []nft.Set{{Name: nft.ClusterIPs, Key: []nft.Type{nft.Proto}}}}
		want := sorted(strings.Split(load(t, r.Table().String()), "\n"))
		got := load(t, "table ip vmapd { set cluster-ips { type inet_proto; }; }\n", batch.DiffTable(table, r).String())
		equal(t, "listing", want, sorted(strings.Split(got, "\n")))
	})
}

// sorted makes listings comparable where objects were made in another order.
func sorted(lines []string) []string {
	list := []string{}
	for _, l := range lines {
		for part := range strings.SplitSeq(l, ", ") {
			part = strings.TrimRight(strings.TrimPrefix(strings.TrimSpace(part), "elements = { "), " },")
			list = append(list, part)
		}
	}
	slices.Sort(list)
	return list
}
