package kube

import (
	"fmt"
	"net/netip"
)

// The address plan. Clusters on one machine share it: they have no link to each other.
const (
	ServiceRanges = "10.96.0.0/16,fd00:96::/112"
	PodRanges     = "10.244.0.0/16,fd00:244::/48"
	DNSAddress    = "10.96.0.10"
	ClusterDomain = "cluster.local"

	// The first addresses of the Service ranges, which the Service kubernetes has.
	kubernetes4, kubernetes6 = "10.96.0.1", "fd00:96::1"

	bits4, bits6 = 24, 64 // of the network between the spaces
	apiPort      = 6443
)

// Names of spaces that are no nodes.
const (
	Control = "control"
	Outside = "outside"
	bridge  = "switch"
)

// addresses are those of a machine, in IPv4 and IPv6.
type addresses [2]netip.Addr

const (
	controlNumber = 10
	outsideNumber = 250
	maxNodes      = outsideNumber - controlNumber - 1
)

// machine returns the addresses of the machine with that number.
func machine(number int) addresses {
	return addresses{
		netip.MustParseAddr(fmt.Sprintf("192.168.77.%d", number)),
		netip.MustParseAddr(fmt.Sprintf("fd77::%d", number)),
	}
}

// nodeName returns the name of the node with that number, from 1 on.
func nodeName(number int) string { return fmt.Sprintf("n%d", number) }

// nodeNumber is the reverse of nodeName; it returns 0 for any other name.
func nodeNumber(name string) int {
	var n int
	if _, err := fmt.Sscanf(name, "n%d", &n); err != nil || n < 1 || n > maxNodes || nodeName(n) != name {
		return 0
	}
	return n
}

// Addresses returns the IPv4 and the IPv6 address of a space. They are invalid if the name is
// that of no space.
func Addresses(space string) (netip.Addr, netip.Addr) {
	var a addresses
	switch n := nodeNumber(space); {
	case space == Control:
		a = machine(controlNumber)
	case space == Outside:
		a = machine(outsideNumber)
	case n > 0:
		a = machine(controlNumber + n)
	}
	return a[0], a[1]
}

// APIServer is the URL of the API server, which works without Services.
func APIServer() string {
	v4, _ := Addresses(Control)
	return fmt.Sprintf("https://%s", netip.AddrPortFrom(v4, apiPort))
}
