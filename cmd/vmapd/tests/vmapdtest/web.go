package vmapdtest

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// LabConfig is the lab's: pods are recognized by their addresses.
func LabConfig() model.Config {
	c := modeltest.Config()
	c.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(lab.PodRange4), netip.MustParsePrefix(lab.PodRange6)}
	return c
}

// Web is a Service that can be reached by every path, over TCP and UDP.
func Web() modeltest.Service {
	return modeltest.NewService("default/web").Typed("LoadBalancer").On("172.30.0.41", "fd00:172:30::41").
		LoadBalancer("192.168.98.41", "fd00:192:168:98::41").External("192.168.99.41", "fd00:192:168:99::41").
		TCP("tcp", 80).NodePort(30080).UDP("udp", 80).NodePort(30080)
}

// Frontends are its addresses.
func Frontends(f model.Family) []netip.AddrPort {
	at := netip.MustParseAddrPort
	if f == model.IPv4 {
		return []netip.AddrPort{
			at("172.30.0.41:80"), at("192.168.98.41:80"), at("192.168.99.41:80"), at("192.168.0.2:30080"),
		}
	}
	return []netip.AddrPort{
		at("[fd00:172:30::41]:80"), at("[fd00:192:168:98::41]:80"), at("[fd00:192:168:99::41]:80"),
		at("[fd00:192:168::2]:30080"),
	}
}

// WebSlices are its endpoints: the pods of these numbers, from 1 on, all on our node
// unless elsewhere has them.
func WebSlices(pods []int, elsewhere ...int) []modeltest.Object {
	var list []modeltest.Object
	for _, f := range model.Families {
		s := modeltest.NewSlice("default/web-"+f.String(), "web").Typed(f.String()).TCP("tcp", 8080).UDP("udp", 8080)
		for _, n := range pods {
			node := modeltest.NodeName
			if slices.Contains(elsewhere, n) {
				node = "node-2"
			}
			s = s.Endpoint(modeltest.Pod(f, n-1).String(), modeltest.OnNode(node))
		}
		list = append(list, s)
	}
	return list
}
