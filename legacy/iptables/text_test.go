package iptables_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// dualStack has each kind of frontend, with each kind of treatment.
func dualStack() *model.Builder {
	config := modeltest.Config()
	config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:10::/64")}
	return modeltest.Builder(config,
		modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "fd00:172:30::/112"),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").
			LoadBalancer("192.168.98.11", "fd00:192:168:98::b").External("192.168.99.11", "fd00:192:168:99::b").
			TCP("http", 80).NodePort(30001).UDP("dns", 53),
		modeltest.NewService("ns1/local").On("172.30.0.43").LoadBalancer("192.168.98.12").
			Policies("Cluster", "Local").Ranges("203.0.113.0/24", "192.168.0.0/24").Sticky(60).
			TCP("", 443).NodePort(30002),
		modeltest.NewService("ns1/elsewhere").On("172.30.0.44").External("192.168.99.12").
			Policies("Local", "Local").TCP("", 80),
		modeltest.NewService("ns1/empty").On("172.30.0.42").TCP("", 80).NodePort(30003),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 5353).Local("10.0.0.2").Ready("10.0.0.3"),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).UDP("dns", 5353).Ready("fd00:10::2"),
		modeltest.NewSlice("ns1/local-4", "local").TCP("", 8443).Local("10.0.0.4").Ready("10.0.0.5", "10.0.0.6"),
		modeltest.NewSlice("ns1/elsewhere-4", "elsewhere").TCP("", 8080).Ready("10.0.0.7"))
}

func wholeText(s *model.FamilySnapshot) string {
	return iptables.Compile(nil, s, iptables.Options{RandomFully: true}).String()
}

func TestGoldenTextOfADualStackCluster(t *testing.T) {
	for _, f := range model.Families {
		t.Run(f.String(), func(t *testing.T) {
			path := filepath.Join("testdata", "dual-stack."+map[model.Family]string{
				model.IPv4: "iptables", model.IPv6: "ip6tables",
			}[f])
			testaid.Golden(t, path, wholeText(dualStack().Snapshot().Family(f)))
		})
	}
}
