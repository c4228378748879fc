package localhost

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// want is what shall be listened for on behalf of a service port.
type want struct {
	at        netip.AddrPort // the loopback address and the node port
	endpoints []netip.AddrPort
	algorithm model.Algorithm
	affinity  time.Duration
}

// wanted returns what a service port wants where Settings.Localhost is set. The zero
// value means that nobody may listen, so that clients are refused at once.
func wanted(sp *model.ServicePort) want {
	if sp == nil {
		return want{}
	}
	at, policy, ok := sp.Loopback()
	if !ok {
		return want{}
	}
	w := want{at: at, algorithm: sp.Algorithm, affinity: sp.Affinity}
	for e := range sp.In(policy) {
		w.endpoints = append(w.endpoints, e.Addr)
	}
	return w
}
