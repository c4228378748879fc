package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Prefix is the beginning of the names of all our chains and xt_recent lists. The backend never
// touches others, except for the jumps to its chains.
const Prefix = "VMAPD-"

// IPVSPrefix is the beginning of the names of the IPVS backend's chains.
const IPVSPrefix = Prefix + "IPVS-"

// Chains that always exist.
const (
	servicesChain    = Prefix + "SERVICES"     // nat: find the Service; filter: is it refused?
	nodePortsChain   = Prefix + "NODEPORTS"    // the same for node ports
	outsideChain     = Prefix + "MARK-OUTSIDE" // nat: mark connections that are not from a pod
	postroutingChain = Prefix + "POSTROUTING"
	masqueradeChain  = Prefix + "MASQUERADE"
	hairpinChain     = Prefix + "HAIRPIN"
	filterChain      = Prefix + "FILTER"  // new connections
	forwardChain     = Prefix + "FORWARD" // refuses, and accepts nothing
	acceptChain      = Prefix + "ACCEPT"  // accepts forwarded packets of Services
	rejectChain      = Prefix + "REJECT"
	dropChain        = Prefix + "DROP-OUTSIDE" // drop connections that are neither from a pod nor from this node
)

// A role is the purpose of one of a service port's chains, and a part of its name.
type role string

const (
	roleExternal role = "E-" // mark, and select a list of endpoints
	roleFirewall role = "F-" // check source ranges
)

// roleChoose has the roles of the chains that choose from a list of endpoints.
var roleChoose = [len(model.TrafficPolicies)]role{model.Cluster: "C-", model.Local: "L-"}

// portHash represents a service port in names of chains. It is an upgrade contract: by these
// names a new version knows the chains of an earlier one.
func portHash(n model.ServicePortName) string {
	return hash(n, "")
}

// isOf reports whether a chain is one of a service port's, or none of any: those have no hash behind a role.
func isOf(chain string, n model.ServicePortName) bool {
	own := portHash(n)
	_, rest, _ := strings.Cut(strings.TrimPrefix(chain, Prefix), "-")
	return len(rest) < len(own) || strings.HasPrefix(rest, own)
}

// recentName is the name of the xt_recent list of the clients of one endpoint, for one
// service port. Both IP families share the names.
func recentName(n model.ServicePortName, e netip.AddrPort) string {
	return Prefix + hash(n, "/"+e.String())
}

// hash returns 16 characters, 80 bits.
func hash(n model.ServicePortName, more string) string {
	sum := sha256.Sum256([]byte(n.Namespace + "/" + n.Name + ":" + n.Port + "/" + n.Protocol.String() + more))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// commentOf returns a comment that names the service port of a rule. model checks names, and
// yet: a character that could end the comment is replaced. The longest names make 150 of the 255 characters that
// iptables takes.
func commentOf(n model.ServicePortName) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-./:", r):
			return r
		}
		return '?'
	}, n.String())
	return `-m comment --comment "` + s + `"`
}
