package batch_test

import (
	"fmt"
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
	b := modeltest.DualStack()
	// Not of IPv6: nft 1.0.6 can't parse what stores its clients.
	sticky := modeltest.NewService("ns1/sticky").On("172.30.0.44").Sticky(60).TCP("", 80)
	sticky.Set(b)
	have := b.Snapshot()
	sticky.Delete(b)
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
			testaid.Equal(t, "listing after the difference to nothing", sorted(want), sorted(strings.Split(load(t, fromNothing.String()), "\n")))
			got := strings.Split(load(t, before.Table().String(), batch.Diff(before, after).String()), "\n")
			testaid.Equal(t, "listing after the difference", sorted(want), sorted(got))
		})
	}

	t.Run("a table of another layout", func(t *testing.T) {
		r := compile.Options{}.Compile(nil, have.Family(model.IPv4))
		table := &nft.Table{Family: model.IPv4, Sets: []nft.Set{{Name: nft.ClusterIPs, Key: []nft.Type{nft.Proto}}}}
		want := sorted(strings.Split(load(t, r.Table().String()), "\n"))
		got := load(t, "table ip vmapd { set cluster-ips { type inet_proto; }; }\n", batch.DiffTable(table, r).String())
		testaid.Equal(t, "listing", want, sorted(strings.Split(got, "\n")))
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
