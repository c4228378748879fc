package model_test

import (
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestSourceRanges(t *testing.T) {
	// Load balancers of both families; the node is 192.168.0.2 and fd00:192:168::2.
	service := web().On("172.30.0.41", "fd00:172:30::29").LoadBalancer("192.168.98.11", "fd00:192:168:98::b")
	for _, tt := range []struct {
		name         string
		ranges       []string
		want4, want6 string // after "forward masquerade" of the load balancer's address
		problems     []string
	}{
		{"none: everybody", nil, "", "", nil},
		{"one of each family", []string{"203.0.113.0/25", "2001:db8:203::/64"}, " from [203.0.113.0/25]", " from [2001:db8:203::/64]", nil},
		{"ranges of one family say nothing about the other", []string{"203.0.113.0/25"}, " from [203.0.113.0/25]", "", nil},
		{"ranges of IPv6 alone", []string{"2001:db8:203::/64"}, "", " from [2001:db8:203::/64]", nil},
		{"spaces around", []string{" 203.0.113.0/25\t", "\n203.0.113.128/26"}, " from [203.0.113.0/25 203.0.113.128/26]", "", nil},
		{"host bits are cleared", []string{"203.0.113.77/25"}, " from [203.0.113.0/25]", "", nil},
		{"sorted, each once, nested ones merged", []string{"203.0.113.64/26", "198.51.100.0/24", "203.0.113.0/25", "203.0.113.0/24", "198.51.100.0/24", "203.0.113.7/32"}, " from [198.51.100.0/24 203.0.113.0/24]", "", nil},
		{"neighbours stay apart", []string{"203.0.113.128/25", "203.0.113.0/25"}, " from [203.0.113.0/25 203.0.113.128/25]", "", nil},
		{"IPv4-mapped", []string{"::ffff:203.0.113.0/121"}, " from [203.0.113.0/25]", "", nil},
		{"the node is among them: so is the frontend itself", []string{"192.168.0.0/24"}, " from [192.168.0.0/24 192.168.98.11/32]", "", nil},
		{"the node, IPv6", []string{"fd00:192:168::2/128"}, "", " from [fd00:192:168::2/128 fd00:192:168:98::b/128]", nil},
		{"the node is in the last of several", []string{"203.0.113.0/24", "192.168.0.2/32"}, " from [192.168.0.2/32 192.168.98.11/32 203.0.113.0/24]", "", nil},
		{"another node is not", []string{"192.168.0.3/32"}, " from [192.168.0.3/32]", "", nil},
		{"the frontend itself is in a range anyway", []string{"192.168.0.0/16"}, " from [192.168.0.0/16]", "", nil},
		{"all of IPv4", []string{"0.0.0.0/0", "203.0.113.0/24"}, " from [0.0.0.0/0]", "", nil},
		{
			"one that can't be read lets nobody in, of either family",
			[]string{"203.0.113.0"},
			" from []", " from []",
			[]string{`Service ns1/web: spec.loadBalancerSourceRanges[0]: "203.0.113.0" is not a CIDR`},
		},
		{
			"beside one that can be read",
			[]string{"nowhere", "203.0.113.0/25", "203.0.113.0/33"},
			" from [203.0.113.0/25]", " from []",
			[]string{
				`Service ns1/web: spec.loadBalancerSourceRanges[0]: "nowhere" is not a CIDR`,
				`Service ns1/web: spec.loadBalancerSourceRanges[2]: "203.0.113.0/33" is not a CIDR`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), service.Ranges(tt.ranges...))
			checkPorts(t, s,
				"ns1/web:http/tcp [172.30.0.41:80 reject, 192.168.98.11:80 reject masquerade"+tt.want4+"]",
				"ns1/web:http/tcp [[fd00:172:30::29]:80 reject, [fd00:192:168:98::b]:80 reject masquerade"+tt.want6+"]")
			checkProblems(t, s, tt.problems...)
		})
	}

	t.Run("they are for load-balancer addresses alone", func(t *testing.T) {
		s := modeltest.Snapshot(modeltest.Config(), allKinds().LoadBalancer("192.168.98.12").Ranges("203.0.113.0/25"), webSlice())
		checkPorts(t, s, "ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.98.11:80 forward masquerade from [203.0.113.0/25], "+
			"192.168.98.12:80 forward masquerade from [203.0.113.0/25], 192.168.99.11:80 forward masquerade, "+
			":30001 forward masquerade] 10.0.0.2:8080, 10.0.0.3:8080")
	})
	t.Run("a Service without such an address has none", func(t *testing.T) {
		checkPorts(t, modeltest.Snapshot(modeltest.Config(), web().Ranges("203.0.113.0/25"), webSlice()), webLine)
	})
}

func TestDecideSourceRanges(t *testing.T) {
	ranges := []string{"203.0.113.0/25", "192.168.0.0/24"}
	with := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), allKinds().Ranges(ranges...), webSlice())
	without := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), allKinds().Ranges("203.0.113.0/25"), webSlice())
	empty := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), allKinds().Ranges(ranges...))
	remote := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), allKinds().Policies("", "Local").Ranges("203.0.113.0/25"), webSlice())
	const (
		vip     = "192.168.98.11:80"
		allowed = "forwarded, has endpoints: 10.0.0.2:8080 masqueraded: external, 10.0.0.3:8080 masqueraded: external"
		dropped = "dropped, source not allowed"
	)
	for _, tt := range []struct {
		name string
		s    *model.Snapshot
		c    model.Connection
		want string
	}{
		{"the first of a range", with, tcp("203.0.113.0", vip), allowed},
		{"the last of a range", with, tcp("203.0.113.127", vip), allowed},
		{"the one behind it", with, tcp("203.0.113.128", vip), dropped},
		{"a pod", with, tcp("10.0.0.9", vip), dropped},
		{"the node, by its own address", with, tcp("192.168.0.2", vip), allowed},
		{"the node, by the frontend's", with, fromNode("192.168.98.11", vip), allowed},
		{"the node, by another Service's", with, fromNode("192.168.98.12", vip), dropped},
		{"a node that is not in the ranges", without, tcp("192.168.0.2", vip), dropped},
		{"a node that is not in the ranges, by the frontend's address", without, fromNode("192.168.98.11", vip), dropped},
		{"the cluster IP is for all", with, tcp("203.0.113.200", "172.30.0.41:80"), "forwarded, has endpoints: 10.0.0.2:8080, 10.0.0.3:8080"},
		{"the external IP is for all", with, tcp("203.0.113.200", "192.168.99.11:80"), allowed},
		{"the node port is for all", with, tcp("203.0.113.200", "192.168.0.2:30001"), allowed},
		{"without endpoints, others are dropped all the same", empty, tcp("203.0.113.200", vip), dropped},
		{"without endpoints, those in a range are rejected", empty, tcp("203.0.113.7", vip), "rejected, no endpoints"},
		{"without endpoints here, others hear of the ranges", remote, tcp("203.0.113.200", vip), dropped},
		{"without endpoints here, those in a range are dropped for that", remote, tcp("203.0.113.7", vip), "dropped, no local endpoints"},
		{"the way round the load balancer does not get round the ranges", remote, tcp("192.168.0.2", vip), dropped},
	} {
		t.Run(tt.name, func(t *testing.T) { equal(t, "outcome", tt.want, outcome(tt.s, tt.c)) })
	}
}

// Whether the node is in a range follows its primary address.
func TestSourceRangesFollowTheNode(t *testing.T) {
	service := web().LoadBalancer("192.168.98.11").Ranges("192.168.0.0/24")
	b := modeltest.Builder(modeltest.Config(), service)
	const (
		itself = "ns1/web:http/tcp [172.30.0.41:80 reject, 192.168.98.11:80 reject masquerade from [192.168.0.0/24 192.168.98.11/32]]"
		not    = "ns1/web:http/tcp [172.30.0.41:80 reject, 192.168.98.11:80 reject masquerade from [192.168.0.0/24]]"
	)
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"nothing known of the node", func() {}, not},
		{"its interfaces", func() { b.SetHostAddresses(hostAddrs("10.0.0.1", "192.168.0.2")) }, not},
		{"the primary one comes first", func() { b.SetHostAddresses(hostAddrs("192.168.0.2", "10.0.0.1")) }, itself},
		{"a Node object that has no address yet", func() { modeltest.NewNode("node-1").Set(b) }, itself},
		{"the Node object goes before", func() { modeltest.NewNode("node-1", "192.168.1.2", "192.168.0.2").Set(b) }, not},
		{"its address changes", func() { modeltest.NewNode("node-1", "192.168.0.7").Set(b) }, itself},
		{"another Node's address", func() { modeltest.NewNode("node-2", "203.0.113.1").Set(b) }, itself},
		{"a Node without an IPv4 address", func() { modeltest.NewNode("node-1", "fd00:192:168::2").Set(b) }, not},
		{"a Node without any address any more", func() { modeltest.NewNode("node-1").Set(b) }, not},
		{"the Node is deleted", func() { b.DeleteNode("node-1") }, not},
		{"it comes back", func() { modeltest.NewNode("node-1", "192.168.0.7").Set(b) }, itself},
		{"and is deleted again", func() { b.DeleteNode("node-1") }, itself},
		{"and the interfaces are gone", func() { b.SetHostAddresses([]netip.Addr{}) }, itself},
	} {
		step.change()
		equal(t, step.name, []string{step.want}, modeltest.PortTexts(b.Snapshot().Family(model.IPv4)))
	}
}
