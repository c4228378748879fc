package nft

import (
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Service ports with session affinity have sets and chains of their own.

// ownName is the end of their names. No name of a Service or port has a slash.
func ownName(n model.ServicePortName) string {
	return n.Namespace + "/" + n.Name + "/" + n.Protocol.String() + "/" + n.Port
}

// isOwn reports whether a set or chain of this name belongs to one service port.
func isOwn(name string) bool { return strings.Contains(name, "/") }

// ownProtocol returns the protocol of the service port in the name of such an object.
func ownProtocol(name string) model.Protocol {
	const at = 2 // of the parts of ownName
	if parts := strings.Split(name, "/"); len(parts) > at {
		p, _ := model.ParseProtocol(strings.ToUpper(parts[at]))
		return p
	}
	return 0
}

func ownSets(sp *model.ServicePort) []Set { return affinityFor(sp).sets() }

func ownChains(sp *model.ServicePort, s *model.Settings) []Chain { return affinityFor(sp).chains(s) }
