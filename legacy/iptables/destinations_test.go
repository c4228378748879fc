package iptables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestDestinationsOfAListing(t *testing.T) {
	many := modeltest.NewSlice("ns1/many-4", "many").UDP("", 5353)
	for i := range 100 {
		many = many.Ready(fmt.Sprintf("10.0.1.%d", i+1))
	}
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), many,
		modeltest.NewService("ns1/many").On("172.30.0.42").UDP("", 53),
		modeltest.NewService("ns1/empty").On("172.30.0.43").UDP("", 53),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").Policies("Local", "Cluster").
			External("192.168.99.11", "fd00:192:168:99::b").TCP("http", 80).UDP("dns", 53).NodePort(30053),
		modeltest.NewSlice("ns1/web-4", "web").TCP("http", 8080).UDP("dns", 5353).Local("10.0.0.2").Ready("10.0.0.3"),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).UDP("dns", 5353).Ready("fd00:10::2"))
	listed := func(f model.Family) map[string]string {
		tables := load(t, iptables.Compile(nil, b.Snapshot().Family(f), iptables.Options{Comments: true}))
		got := map[string]string{}
		for vip, endpoints := range saved(t, tables).Destinations(model.UDP) {
			slices.SortFunc(endpoints, netip.AddrPort.Compare)
			text := fmt.Sprint(endpoints)
			if len(endpoints) > 2 {
				text = fmt.Sprint(len(slices.Compact(endpoints)))
			}
			got[netip.AddrPortFrom(vip.Addr, vip.Port).String()] = text
		}
		return got
	}
	const both = "[10.0.0.2:5353 10.0.0.3:5353]"
	equal(t, "IPv4", map[string]string{
		"172.30.0.41:53": "[10.0.0.2:5353]", "192.168.99.11:53": both, "192.168.0.2:30053": both, "172.30.0.42:53": "100",
	}, listed(model.IPv4))
	const one = "[[fd00:10::2]:5353]"
	equal(t, "IPv6", map[string]string{
		"[fd00:192:168:99::b]:53": one, "[fd00:192:168::2]:30053": one,
	}, listed(model.IPv6))
}
