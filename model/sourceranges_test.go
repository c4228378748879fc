package model_test

import (
	"testing"

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
		{"one of each family", []string{"203.0.113.0/25", "2001:db8:203::/64"}, " from [203.0.113.0/25]", " from [2001:db8:203::/64]", nil},
		{"ranges of one family say nothing about the other", []string{"203.0.113.0/25"}, " from [203.0.113.0/25]", "", nil},
		{"ranges of IPv6 alone", []string{"2001:db8:203::/64"}, "", " from [2001:db8:203::/64]", nil},
		{"spaces around", []string{" 203.0.113.0/25\t", "\n203.0.113.128/26"}, " from [203.0.113.0/25 203.0.113.128/26]", "", nil},
		{"sorted, each once, nested ones merged", []string{"203.0.113.64/26", "198.51.100.0/24", "203.0.113.0/25", "203.0.113.0/24", "198.51.100.0/24", "203.0.113.7/32"}, " from [198.51.100.0/24 203.0.113.0/24]", "", nil},
		{"neighbours stay apart", []string{"203.0.113.128/25", "203.0.113.0/25"}, " from [203.0.113.0/25 203.0.113.128/25]", "", nil},
		{"IPv4-mapped", []string{"::ffff:203.0.113.0/121"}, " from [203.0.113.0/25]", "", nil},
		{"the node is among them: so is the frontend itself", []string{"192.168.0.0/24"}, " from [192.168.0.0/24 192.168.98.11/32]", "", nil},
		{"the node, IPv6", []string{"fd00:192:168::2/128"}, "", " from [fd00:192:168::2/128 fd00:192:168:98::b/128]", nil},
		{"the node is in the last of several", []string{"203.0.113.0/24", "192.168.0.2/32"}, " from [192.168.0.2/32 192.168.98.11/32 203.0.113.0/24]", "", nil},
		{"another node is not", []string{"192.168.0.3/32"}, " from [192.168.0.3/32]", "", nil},
		{"the frontend itself is in a range anyway", []string{"192.168.0.0/16"}, " from [192.168.0.0/16]", "", nil},
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
}
