//go:build linux

package hostaddr

// Addresses: nodes 192.168.0.0/24 (ours .2), and IPv6 twins in fd00:40::/64.

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func texts(list []netip.Addr) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return out
}

func TestOrder(t *testing.T) {
	at := func(addr string, link, flags int) address {
		return address{Addr: netip.MustParseAddr(addr), link: link, flags: flags}
	}
	all := []address{
		at("fd00:40::9", 2, unix.IFA_F_TEMPORARY),
		at("fd00:40::2", 2, 0),
		at("192.168.7.1", 9, 0),
		at("192.168.5.1", 1, 0),
		at("192.168.0.3", 4, unix.IFA_F_SECONDARY),
		at("192.168.0.1", 4, 0),
		at("192.168.0.2", 4, 0),
		at("192.168.7.1", 3, 0),
		at("fd00:50::2", 1, unix.IFA_F_DEPRECATED),
		at("fd00:50::3", 1, 0),
	}
	for _, tt := range []struct {
		name string
		ways []address
		want []string
	}{{
		"no way out: by interface", nil,
		[]string{
			"192.168.5.1", "192.168.7.1", "192.168.0.1", "192.168.0.2", "192.168.0.3",
			"fd00:50::3", "fd00:50::2", "fd00:40::2", "fd00:40::9",
		},
	}, {
		"the source address first, then its interface",
		[]address{at("192.168.0.2", 4, 0), at("fd00:40::2", 2, 0)},
		[]string{
			"192.168.0.2", "192.168.0.1", "192.168.0.3", "192.168.5.1", "192.168.7.1",
			"fd00:40::2", "fd00:40::9", "fd00:50::3", "fd00:50::2",
		},
	}, {
		"a temporary source address is not the node's",
		[]address{at("fd00:40::9", 2, 0)},
		[]string{
			"192.168.5.1", "192.168.7.1", "192.168.0.1", "192.168.0.2", "192.168.0.3",
			"fd00:40::2", "fd00:40::9", "fd00:50::3", "fd00:50::2",
		},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			in := append([]address(nil), all...)
			testaid.Equal(t, "order", tt.want, texts(order(in, tt.ways)))
		})
	}
}

func TestUsable(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		flags int
		want  bool
	}{
		{"192.168.0.2", unix.IFA_F_PERMANENT, true},
		{"169.254.20.10", 0, true}, // link-local IPv4 is routable within a node
		{"127.0.0.1", 0, false},
		{"127.9.9.9", 0, false},
		{"::1", 0, false},
		{"fe80::1", 0, false},
		{"fd00:40::2", 0, true},
		{"fd00:40::2", unix.IFA_F_TENTATIVE, false},
		{"fd00:40::2", unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC, true},
		{"fd00:40::2", unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED, false},
		{"fd00:40::2", unix.IFA_F_DADFAILED, false},
		{"fd00:40::2", unix.IFA_F_DEPRECATED, true},
	} {
		if got := usable(netip.MustParseAddr(tt.addr), tt.flags); got != tt.want {
			t.Errorf("%s with flags %#x: want %v, got %v", tt.addr, tt.flags, tt.want, got)
		}
	}
}
