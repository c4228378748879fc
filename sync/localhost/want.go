package localhost

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// want describes the listener of a service port.
type want struct {
	at        netip.AddrPort // the loopback address and the node port
	endpoints []netip.AddrPort
	algorithm model.Algorithm
	affinity  time.Duration
}

// wanted returns the listener of a service port where Settings.Localhost is set. The zero
// value means none, so that clients are refused at once.
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
