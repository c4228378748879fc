package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Prefix is what the names of all our chains and of our xt_recent lists begin with.
// Nothing else is ever touched.
const Prefix = "VMAPD-"

// IPVSPrefix is what the names of the IPVS backend's chains begin with.
const IPVSPrefix = Prefix + "IPVS-"

// Chains that are always there.
const (
	servicesChain    = Prefix + "SERVICES"     // nat: who is meant? filter: is it refused?
	nodePortsChain   = Prefix + "NODEPORTS"    // the same for node ports
	outsideChain     = Prefix + "MARK-OUTSIDE" // nat: mark what is not from a pod
	postroutingChain = Prefix + "POSTROUTING"
	masqueradeChain  = Prefix + "MASQUERADE"
	hairpinChain     = Prefix + "HAIRPIN"
	filterChain      = Prefix + "FILTER" // new connections
	forwardChain     = Prefix + "FORWARD"
	rejectChain      = Prefix + "REJECT"
	dropChain        = Prefix + "DROP-OUTSIDE" // drop what is neither from a pod nor from this node
)

// maxChain is the longest name of a chain that iptables takes (XT_EXTENSION_MAXNAMELEN
// with its final zero).
const maxChain = 28

// A role is what one of the chains of a service port is for; it is a part of its name.
type role string

const (
	roleExternal role = "E-" // mark, and whose list of endpoints?
	roleFirewall role = "F-" // who may connect?
)

// roles of the chains of a list of endpoints.
var (
	roleChoose = [...]role{model.Cluster: "C-", model.Local: "L-"}   // choose one
	roleRecall = [...]role{model.Cluster: "RC-", model.Local: "RL-"} // was the client here before?
)

// portHash stands for a service port in names of chains. It is an upgrade contract: what
// an earlier version left is known by it.
func portHash(n model.ServicePortName) string {
	return hash(n.Namespace, "/", n.Name, ":", n.Port, "/", n.Protocol.String())
}

// recentName is the name of the xt_recent list of the clients of one endpoint, for one
// service port. Both IP families share the names.
func recentName(n model.ServicePortName, e netip.AddrPort) string {
	return Prefix + hash(n.Namespace, "/", n.Name, ":", n.Port, "/", n.Protocol.String(), "/", e.String())
}

// hash returns 16 characters, 80 bits.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:10])
}

// maxComment is the longest comment that iptables takes (XT_MAX_COMMENT_LEN with its
// final zero).
const maxComment = 255

// commentOf returns the match that says whose a rule is. model lets no name pass that is
// none, and yet: what a comment can't hold harmlessly is not in it.
func commentOf(n model.ServicePortName) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-./:", r):
			return r
		}
		return '?'
	}, n.String())
	if len(s) > maxComment {
		s = s[:maxComment-3] + "..."
	}
	return `-m comment --comment "` + s + `"`
}
