package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestDecideWhoIsMeant(t *testing.T) {
	older := allKinds()
	younger := modeltest.NewService("ns1/younger").CreatedAt(1).On("172.30.0.42").TCP("http", 80).External("192.168.99.11").
		Port(model.Port{Name: "dns", Protocol: "UDP", Port: 53, NodePort: 30053})
	noPorts := modeltest.NewService("ns1/no-ports").On("172.30.0.43")
	elsewhere := modeltest.NewService("ns1/elsewhere").On("10.96.0.1").TCP("", 80) // in no ServiceCIDR
	others := modeltest.NewService("ns1/others").Labeled(model.LabelServiceProxyName, "other").On("172.30.0.44").TCP("", 80)
	slice := modeltest.NewSlice("ns1/younger-1", "younger").UDP("dns", 5353).Ready("10.0.0.9")
	s := modeltest.Snapshot(modeltest.Config(), older, younger, noPorts, elsewhere, others, webSlice(), slice,
		modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"))
	udp := func(dest string) model.Connection {
		c := tcp("203.0.113.9", dest)
		c.Protocol = model.UDP
		return c
	}
	const (
		toCluster  = "forwarded, has endpoints: 10.0.0.2:8080, 10.0.0.3:8080"
		toExternal = "forwarded, has endpoints: 10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external"
	)
	for _, tt := range []struct {
		name string
		c    model.Connection
		want string
		port string // of whom, if of anybody
	}{
		{"a cluster IP", tcp("10.0.0.9", "172.30.0.41:80"), toCluster, "ns1/web:http"},
		{"a load-balancer address", tcp("203.0.113.9", "192.168.98.11:80"), toExternal, "ns1/web:http"},
		{"an external IP that two want", tcp("203.0.113.9", "192.168.99.11:80"), toExternal, "ns1/web:http"},
		{"a node port", tcp("203.0.113.9", "192.168.0.2:30001"), toExternal, "ns1/web:http"},
		{"a node port of UDP", udp("192.168.0.2:30053"), "forwarded, has endpoints: 10.0.0.9:5353 masqueraded: external", "ns1/younger:dns"},
		{"without endpoints", tcp("10.0.0.9", "172.30.0.42:80"), "rejected, no endpoints", "ns1/younger:http"},

		{"a cluster IP on a port that its Service does not have", tcp("10.0.0.9", "172.30.0.41:81"), "rejected, unused port", ""},
		{"a cluster IP over another protocol", udp("172.30.0.41:80"), "rejected, unused port", ""},
		{"a cluster IP on the Service's node port", tcp("10.0.0.9", "172.30.0.41:30001"), "rejected, unused port", ""},
		{"a cluster IP of a Service without ports", tcp("10.0.0.9", "172.30.0.43:80"), "rejected, unused port", ""},
		{"a cluster IP outside all ServiceCIDRs", tcp("10.0.0.9", "10.96.0.1:81"), "rejected, unused port", ""},
		{"an external IP on another port", tcp("203.0.113.9", "192.168.99.11:81"), "not ours, no Service", ""},
		{"a load-balancer address over another protocol", udp("192.168.98.11:80"), "not ours, no Service", ""},
		{"a node port over another protocol", udp("192.168.0.2:30001"), "not ours, no Service", ""},
		{"a port of the node that is no node port", tcp("203.0.113.9", "192.168.0.2:22"), "not ours, no Service", ""},
		{"a node port on an address of another node", tcp("203.0.113.9", "192.168.0.3:30001"), "not ours, no Service", ""},
		{"a node port on a load-balancer address", tcp("203.0.113.9", "192.168.98.11:30001"), "not ours, no Service", ""},

		{"an unallocated address", tcp("10.0.0.9", "172.30.0.99:80"), "dropped, unallocated address", ""},
		{"an unallocated address, from the node", tcp("192.168.0.2", "172.30.0.99:80"), "dropped, unallocated address", ""},
		{"the address of another proxy's Service", tcp("10.0.0.9", "172.30.0.44:80"), "dropped, unallocated address", ""},
		{"a pod", tcp("10.0.0.9", "10.0.0.2:8080"), "not ours, no Service", ""},
		{"anybody", tcp("10.0.0.9", "203.0.113.1:80"), "not ours, no Service", ""},
		{"the other family, where there is nothing", tcp("fd00:10::9", "[fd00:172:30::29]:80"), "not ours, no Service", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, "outcome", tt.want, outcome(s, tt.c))
			d := model.Decide(s, tt.c)
			equal(t, "is there a frontend and a service port?", [2]bool{tt.port != "", tt.port != ""}, [2]bool{d.Frontend != nil, d.Port != nil})
			if d.Port != nil {
				equal(t, "service port", tt.port, d.Port.Name.String())
			}
		})
	}

	t.Run("without ServiceCIDRs nothing is unallocated", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), web())
		equal(t, "outcome", "not ours, no Service", outcome(s, tcp("10.0.0.9", "172.30.0.99:80")))
	})
	t.Run("an address that becomes free is unallocated", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), web(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"))
		equal(t, "before", "rejected, no endpoints", outcome(b.Snapshot(), tcp("10.0.0.9", "172.30.0.41:80")))
		web().Delete(b)
		equal(t, "after", "dropped, unallocated address", outcome(b.Snapshot(), tcp("10.0.0.9", "172.30.0.41:80")))
	})
}

// An address may be the node's and a Service's at once.
func TestDecideAddressesOfBoth(t *testing.T) {
	config := modeltest.Config()
	config.NodePortAddresses = model.NodePortAddresses{All: true}
	b := modeltest.Builder(config, modeltest.OurNode(), web().LoadBalancer("192.168.98.11"), webSlice(),
		modeltest.NewService("ns1/other").On("172.30.0.42").TCP("", 443).NodePort(80),
		modeltest.NewSlice("ns1/other-1", "other").TCP("", 8443).Ready("10.0.0.9"))
	b.SetHostAddresses(hostAddrs("192.168.0.2", "192.168.98.11"))
	for _, tt := range []struct{ name, dest, want string }{
		{"the Service goes before the node port", "192.168.98.11:80", "forwarded, has endpoints: 10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external"},
		{"elsewhere the node port answers", "192.168.0.2:80", "forwarded, has endpoints: 10.0.0.9:8443 masqueraded: external"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, "outcome", tt.want, outcome(b.Snapshot(), tcp("203.0.113.9", tt.dest)))
		})
	}

	t.Run("a node port on a Service's address that is the node's, too", func(t *testing.T) {
		allKinds().Set(b)
		equal(t, "outcome", "forwarded, has endpoints: 10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external",
			outcome(b.Snapshot(), tcp("203.0.113.9", "192.168.98.11:30001")))
	})
}

func TestDecideLoopback(t *testing.T) {
	localhost := modeltest.Config()
	localhost.NodePortAddresses.Localhost = [2]bool{true, true}
	onlyIPv4 := modeltest.Config()
	onlyIPv4.NodePortAddresses.Localhost = [2]bool{true, false}
	services := objects{
		modeltest.OurNode(),
		allKinds().On("172.30.0.41", "fd00:172:30::29"), webSlice(),
		modeltest.NewSlice("ns1/web-6", "web").IPv6().TCP("http", 8080).Ready("fd00:10::2"),
		modeltest.NewService("ns1/local").On("172.30.0.42").Policies("Local", "Local").TCP("", 80).NodePort(30002),
		modeltest.NewSlice("ns1/local-1", "local").TCP("", 8080).Ready("10.0.0.5"),
		modeltest.NewService("ns1/empty").On("172.30.0.43").TCP("", 80).NodePort(30003).
			Port(model.Port{Name: "sctp", Protocol: "SCTP", Port: 80, NodePort: 30001}).UDP("udp", 80).NodePort(30001),
		modeltest.NewSlice("ns1/empty-1", "empty").Port("sctp", "SCTP", 8080).UDP("udp", 8080).Ready("10.0.0.9"),
	}
	over := func(p model.Protocol, c model.Connection) model.Connection { c.Protocol = p; return c }
	fromOutside := tcp("203.0.113.9", "127.0.0.1:30001")
	const byForwarder = "forwarded, loopback forwarder: 10.0.0.2:8080 masqueraded: by the forwarder, 10.0.0.3:8080 masqueraded: by the forwarder"
	for _, tt := range []struct {
		name   string
		config model.Config
		c      model.Connection
		want   string
	}{
		{"a node port", localhost, tcp("127.0.0.1", "127.0.0.1:30001"), byForwarder},
		{"from an address of the node", localhost, tcp("192.168.0.2", "127.0.0.1:30001"), byForwarder},
		{"IPv6", localhost, tcp("::1", "[::1]:30001"), "forwarded, loopback forwarder: [fd00:10::2]:8080 masqueraded: by the forwarder"},
		{"UDP", localhost, over(model.UDP, tcp("127.0.0.1", "127.0.0.1:30001")), "forwarded, loopback forwarder: 10.0.0.9:8080 masqueraded: by the forwarder"},
		{"the policy Local, without endpoints here", localhost, tcp("127.0.0.1", "127.0.0.1:30002"), "forwarded, loopback forwarder: 10.0.0.5:8080 masqueraded: by the forwarder"},
		{"no endpoints", localhost, tcp("127.0.0.1", "127.0.0.1:30003"), "rejected, no endpoints"},
		{"SCTP, which the program does not speak", localhost, over(model.SCTP, tcp("127.0.0.1", "127.0.0.1:30001")), "not ours, no Service"},
		{"a port that is no node port", localhost, tcp("127.0.0.1", "127.0.0.1:80"), "not ours, no Service"},
		{"the unspecified address, which means loopback", localhost, tcp("192.168.0.2", "0.0.0.0:30001"), byForwarder},
		{"the unspecified address is no node port", modeltest.Config(), tcp("192.168.0.2", "0.0.0.0:30001"), "not ours, no Service"},
		{"the unspecified address, from outside", localhost, tcp("203.0.113.9", "[::]:30001"), "not ours, no Service"},
		{"from outside, which no kernel lets in", localhost, fromOutside, "not ours, no Service"},
		{"another loopback address, where nobody listens", localhost, tcp("127.0.0.1", "127.0.0.2:30001"), "not ours, no Service"},
		{"if loopback is not configured", modeltest.Config(), tcp("127.0.0.1", "127.0.0.1:30001"), "not ours, no Service"},
		{"if it is only for the other family", onlyIPv4, tcp("::1", "[::1]:30001"), "not ours, no Service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, "outcome", tt.want, outcome(modeltest.Snapshot(tt.config, services...), tt.c))
		})
	}
}
