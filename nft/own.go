package nft

import (
	"net/netip"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Service ports with session affinity have sets of their own: which endpoint each client has, and the endpoints that
// one may have, for both lists of endpoints. No name of a namespace makes a name look like one of another kind, because
// none of these words begins with another one.
var (
	affinityOf     = [...]string{model.Cluster: "affinity-", model.Local: "local-affinity-"}
	ownEndpointsOf = [...]string{model.Cluster: "own-endpoints-", model.Local: "local-own-endpoints-"}
)

// removedFor is how long no client is sent to an endpoint that was taken away: as long as the longest timeout
// that the API server admits (sessionAffinityConfig.clientIP.timeoutSeconds).
const removedFor = 24 * time.Hour

// AffinityMap is the name of the map that has the clients of a service port with session affinity, for one of
// its lists of endpoints.
func AffinityMap(port model.ServicePortName, list model.TrafficPolicy) string {
	return affinityOf[list] + OwnName(port)
}

// OwnEndpoints is the name of the set that has the endpoints that a client in such a map may have.
func OwnEndpoints(port model.ServicePortName, list model.TrafficPolicy) string {
	return ownEndpointsOf[list] + OwnName(port)
}

// Endpoint returns the endpoint in an element of such a map.
func Endpoint(data string) (netip.AddrPort, bool) {
	if len(data) <= RegisterSize {
		return netip.AddrPort{}, false
	}
	at := len(data) - RegisterSize
	addr, ok := netip.AddrFromSlice([]byte(data[:at]))
	return netip.AddrPortFrom(addr, uint16(data[at])<<8|uint16(data[at+1])), ok
}

// OwnName is the end of the names of a service port's own sets and chains. No name of a Service or port has a slash.
func OwnName(n model.ServicePortName) string {
	return n.Namespace + "/" + n.Name + "/" + n.Protocol.String() + "/" + n.Port
}

// isOwn reports whether a set or chain of this name belongs to one service port.
func isOwn(name string) bool { return strings.Contains(name, "/") }

// Removed returns the element of RemovedEndpoints for an element that is deleted from a set, if it was one of
// OwnEndpoints.
func Removed(set string, e Element) (Element, bool) {
	if !strings.HasPrefix(set, ownEndpointsOf[model.Cluster]) && !strings.HasPrefix(set, ownEndpointsOf[model.Local]) {
		return Element{}, false
	}
	addr, port := e.Key[:len(e.Key)-RegisterSize], e.Key[len(e.Key)-RegisterSize:]
	return Element{Key: string(AppendProto([]byte(addr), ownProtocol(set))) + port}, true
}

// ownProtocol returns the protocol of the service port in the name of such an object.
func ownProtocol(name string) model.Protocol {
	const at = 2 // of the parts of OwnName
	if parts := strings.Split(name, "/"); len(parts) > at {
		p, _ := model.ParseProtocol(strings.ToUpper(parts[at]))
		return p
	}
	return 0
}
