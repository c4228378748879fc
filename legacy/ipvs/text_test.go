package ipvs_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestGoldenText(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	config.DropInvalid = true
	s := modeltest.Snapshot(config, all()...)
	for _, f := range model.Families {
		path := filepath.Join("testdata", strings.ToLower(f.String())+".txt")
		got := ipvs.Compile(nil, s.Family(f), ipvs.Options{StrictARP: true, RandomFully: true}).String()
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, path, strings.Split(string(want), "\n"), strings.Split(got, "\n"))
	}
}
