package model_test

import (
	"fmt"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A tenant writes addresses into spec.externalIPs that the API server has not given to any
// Service yet, and waits.
func TestAClusterIPGoesBeforeOlderExternalIPs(t *testing.T) {
	var evil []string
	for i := range 4096 {
		evil = append(evil, fmt.Sprintf("172.30.%d.%d", i/256, i%256))
	}
	attacker := modeltest.NewService("ns1/evil").CreatedAt(1).On("172.30.255.1").TCP("", 80).External(evil...)
	check := func(t *testing.T, b *model.Builder, want int) {
		t.Helper()
		b.Snapshot()
		got := 0
		for i := range 20 {
			s := modeltest.NewService(fmt.Sprintf("ns2/s%d", i)).CreatedAt(2+i).
				On(fmt.Sprintf("172.30.%d.7", i%16)).TCP("", 80)
			s.ClusterIPs = []string{fmt.Sprintf("172.30.%d.%d", i%16, 10+i)}
			s.Set(b)
			port := pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns2/"+s.Name, "", model.TCP)]
			if len(port.Frontends) > 0 && port.Frontends[0].VIP.Addr.String() == s.ClusterIPs[0] {
				got++
			}
		}
		if got != want {
			t.Errorf("%d of 20 Services have their cluster IP, want %d", got, want)
		}
	}
	t.Run("in an unknown range of cluster IPs", func(t *testing.T) {
		check(t, modeltest.Builder(modeltest.Config(), attacker), 20)
	})
	t.Run("in a known one", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), attacker, modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"))
		check(t, b, 20)
		// Not even unallocated ones are served.
		port := pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns1/evil", "", model.TCP)]
		testaid.Equal(t, "number of the attacker's frontends", 1, len(port.Frontends))
	})
}

func TestExternalAddressesThatAreRefused(t *testing.T) {
	const (
		external = "Service ns1/web: spec.externalIPs: "
		ingress  = "Service ns1/web: status.loadBalancer.ingress: "
		inCIDR   = " is not served: it is in a ServiceCIDR, a range of cluster IPs"
		isNode   = " is not served: it is an address of this node, where these are not allowed"
		noRange  = " is not served: it is in none of the allowed ranges of external IPs"
		disabled = " is not served: external IPs are disabled (feature gate AllowServiceExternalIPs)"
	)
	s := web().LoadBalancer("192.168.98.11", "172.30.7.1").External("192.168.99.11", "172.30.7.2", "192.168.0.2")
	cidr := modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16")
	for _, tt := range []struct {
		name     string
		allowed  model.ExternalAddresses
		objects  objects
		want     []string
		problems []string
	}{
		{
			"by default, those in a range of cluster IPs",
			model.ExternalAddresses{},
			objects{cidr},
			[]string{"172.30.0.41", "192.168.98.11", "192.168.99.11", "192.168.0.2"},
			[]string{external + "172.30.7.2" + inCIDR, ingress + "172.30.7.1" + inCIDR},
		},
		{
			"a setting refuses the node's",
			model.ExternalAddresses{InServiceCIDRs: true, NoNodeAddresses: true},
			objects{cidr},
			[]string{"172.30.0.41", "192.168.98.11", "172.30.7.1", "192.168.99.11", "172.30.7.2"},
			[]string{external + "192.168.0.2" + isNode},
		},
		{
			"ranges of external IPs",
			model.ExternalAddresses{Ranges: prefixes("192.168.99.0/24", "172.30.0.0/16")},
			nil,
			[]string{"172.30.0.41", "192.168.98.11", "172.30.7.1", "192.168.99.11", "172.30.7.2"},
			[]string{external + "192.168.0.2" + noRange},
		},
		{
			"… allow none in a range of cluster IPs",
			model.ExternalAddresses{Ranges: prefixes("0.0.0.0/0")},
			objects{cidr},
			[]string{"172.30.0.41", "192.168.98.11", "192.168.99.11", "192.168.0.2"},
			[]string{external + "172.30.7.2" + inCIDR, ingress + "172.30.7.1" + inCIDR},
		},
		{
			"no external IPs",
			model.ExternalAddresses{NoExternalIPs: true, InServiceCIDRs: true},
			objects{cidr},
			[]string{"172.30.0.41", "192.168.98.11", "172.30.7.1"},
			[]string{external + "172.30.7.2" + disabled, external + "192.168.0.2" + disabled, external + "192.168.99.11" + disabled},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := modeltest.Config()
			config.ExternalAddresses = tt.allowed
			b := modeltest.Builder(config, append(objects{s, modeltest.OurNode()}, tt.objects...)...)
			var got []string
			for _, fe := range pointers(b.Snapshot())[model.IPv4][modeltest.PortName("ns1/web", "http", model.TCP)].Frontends {
				got = append(got, fe.VIP.Addr.String())
			}
			testaid.Equal(t, "served", tt.want, got)
			checkProblems(t, b.Snapshot(), tt.problems...)
		})
	}
}

// A refused address is not claimed: the Service that may have it gets it, though it is younger.
func TestARefusedAddressIsFreeForOthers(t *testing.T) {
	older := modeltest.NewService("ns1/older").CreatedAt(1).On("172.30.0.41").TCP("", 80).External("192.168.98.11")
	younger := modeltest.NewService("ns1/younger").CreatedAt(2).On("172.30.0.42").TCP("", 80).LoadBalancer("192.168.98.11")
	config := modeltest.Config()
	checkPorts(t, modeltest.Builder(config, older, younger).Snapshot(),
		"ns1/older/tcp [172.30.0.41:80 reject, 192.168.98.11:80 reject masquerade]", "ns1/younger/tcp [172.30.0.42:80 reject]")
	config.ExternalAddresses.NoExternalIPs = true
	checkPorts(t, modeltest.Builder(config, older, younger).Snapshot(),
		"ns1/older/tcp [172.30.0.41:80 reject]", "ns1/younger/tcp [172.30.0.42:80 reject, 192.168.98.11:80 reject masquerade]")
}
