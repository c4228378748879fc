package model_test

import (
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

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
			testaid.Equal(t, "outcome", tt.want, outcome(modeltest.Snapshot(tt.config, services...), tt.c))
		})
	}
}
