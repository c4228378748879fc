package ipvs_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestGoldenText(t *testing.T) {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	config.DropInvalid = true
	s := modeltest.Snapshot(config, all()...)
	for _, f := range model.Families {
		path := filepath.Join("testdata", strings.ToLower(f.String())+".txt")
		testaid.Golden(t, path, ipvs.Compile(nil, s.Family(f), ipvs.Options{StrictARP: true, RandomFully: true}).String())
	}
}
