package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestFrontends(t *testing.T) {
	const ends = " 10.0.0.2:8080, 10.0.0.3:8080"
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		want    []string
	}{
		{
			"each kind, cluster IP first; all but that are masqueraded",
			web().External("192.168.99.11").LoadBalancer("192.168.98.11").NodePort(30001),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, " +
				"192.168.99.11:80 forward masquerade, :30001 forward masquerade]" + ends},
		},
		{
			"without a node port there is none: allocateLoadBalancerNodePorts false",
			web().Typed("LoadBalancer").LoadBalancer("192.168.98.11"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade]" + ends},
		},
		{
			"status is believed whatever the type",
			web().Typed("ClusterIP").LoadBalancer("192.168.98.11"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade]" + ends},
		},
		{
			"each port has all addresses",
			web().TCP("https", 443).External("192.168.99.11"),
			[]string{
				"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.99.11:80 forward masquerade]" + ends,
				"ns1/web:https/tcp [172.30.0.41:443 reject, 192.168.99.11:443 reject masquerade]",
			},
		},
		{
			"a load balancer that is a proxy must see its own traffic",
			web().From(model.Ingress{IP: "192.168.98.11", IPMode: "Proxy"}).From(model.Ingress{IP: "192.168.98.12", IPMode: "VIP"}),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.12:80 forward masquerade]" + ends},
		},
		{
			"a host name is no address",
			web().From(model.Ingress{}).LoadBalancer("192.168.98.11"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade]" + ends},
		},
		{
			"addresses of a family in which the Service has no cluster IP are left out",
			web().External("fd00:192:168:99::b").LoadBalancer("fd00:192:168:98::b"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward]" + ends},
		},
		{
			"an address given twice counts once, as what it was first",
			web().LoadBalancer("192.168.98.11", "192.168.98.11").External("192.168.98.11", "192.168.99.11", "192.168.99.11", "172.30.0.41"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade, " +
				"192.168.99.11:80 forward masquerade]" + ends},
		},
		{
			"addresses are spelled in several ways in old objects",
			web().On("172.030.000.041").External("::ffff:192.168.99.11", "192.168.099.011"),
			[]string{"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.99.11:80 forward masquerade]" + ends},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, webSlice())
			checkPorts(t, s, tt.want...)
			checkProblems(t, s)
		})
	}

	t.Run("the kinds of frontends", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(),
			web().External("192.168.99.11").LoadBalancer("192.168.98.11").NodePort(30001))
		sp, ok := s.Family(model.IPv4).ServicePort(modeltest.PortName("ns1/web", "http", model.TCP))
		if !ok {
			t.Fatal("service port is missing")
		}
		want := []string{
			"cluster IP 172.30.0.41:80/tcp", "load-balancer address 192.168.98.11:80/tcp",
			"external IP 192.168.99.11:80/tcp", "node port 30001/tcp",
		}
		got := []string{}
		for _, fe := range sp.Frontends {
			got = append(got, fe.Kind.String()+" "+fe.VIP.String())
		}
		equal(t, "frontends", want, got)
	})
}

func TestDualStack(t *testing.T) {
	service := web().On("fd00:172:30::29", "172.30.0.41").
		External("192.168.99.11", "fd00:192:168:99::b").LoadBalancer("fd00:192:168:98::b").NodePort(30001)
	slice6 := modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Local("fd00:10::2")
	line4 := "ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.99.11:80 forward masquerade, " +
		":30001 forward masquerade] 10.0.0.2:8080, 10.0.0.3:8080"
	line6 := "ns1/web:http/tcp [[fd00:172:30::29]:80 forward, [fd00:192:168:98::b]:80 forward masquerade, " +
		"[fd00:192:168:99::b]:80 forward masquerade, :30001 forward masquerade] [fd00:10::2]:8080 local"

	b := modeltest.Builder(modeltest.Config(), service, webSlice(), slice6, modeltest.OurNode())
	checkPorts(t, b.Snapshot(), line4, line6)
	checkProblems(t, b.Snapshot())
	equal(t, "IPv4 hairpins", []string{}, addrs(b.Snapshot().Family(model.IPv4).Hairpins()))
	equal(t, "IPv6 hairpins", []string{"fd00:10::2"}, addrs(b.Snapshot().Family(model.IPv6).Hairpins()))
	equal(t, "IPv6 cluster IPs", []string{"fd00:172:30::29"}, addrs(b.Snapshot().Family(model.IPv6).ClusterIPs()))

	t.Run("a family without endpoints rejects by itself", func(t *testing.T) {
		slice6.Delete(b)
		got := modeltest.PortTexts(b.Snapshot().Family(model.IPv6))
		equal(t, "IPv6 ports", []string{"ns1/web:http/tcp [[fd00:172:30::29]:80 reject, [fd00:192:168:98::b]:80 reject masquerade, " +
			"[fd00:192:168:99::b]:80 reject masquerade, :30001 reject masquerade]"}, got)
		equal(t, "IPv4 ports", []string{line4}, modeltest.PortTexts(b.Snapshot().Family(model.IPv4)))
		slice6.Set(b)
	})

	t.Run("a family can be given up and taken up again", func(t *testing.T) {
		service.On("172.30.0.41").Set(b)
		checkPorts(t, b.Snapshot(), line4)
		equal(t, "IPv6 cluster IPs", []string{}, addrs(b.Snapshot().Family(model.IPv6).ClusterIPs()))
		equal(t, "IPv6 hairpins", []string{}, addrs(b.Snapshot().Family(model.IPv6).Hairpins()))
		service.Set(b)
		checkPorts(t, b.Snapshot(), line4, line6)
	})

	t.Run("a Service of IPv6 alone", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), service.On("fd00:172:30::29"), webSlice(), slice6)
		checkPorts(t, s, line6)
	})
}
