package localhost

import (
	"net/netip"
	"slices"
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
// value means that nobody may listen, so that clients are refused at once: it has no
// node port, or no endpoint, or is SCTP. It says what model.Decide says.
func wanted(sp *model.ServicePort) want {
	if sp == nil || sp.Name.Protocol == model.SCTP {
		return want{}
	}
	i := slices.IndexFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.Kind == model.NodePort })
	if i < 0 {
		return want{}
	}
	fe := sp.Frontends[i]
	list := fe.TrafficPolicy
	switch {
	case fe.ShortCircuit:
		list = model.Cluster
	case fe.Action != model.Forward:
		return want{}
	}
	w := want{
		at:        netip.AddrPortFrom(loopback(sp.Family), fe.VIP.Port),
		algorithm: sp.Algorithm,
		affinity:  sp.Affinity,
	}
	for e := range sp.In(list) {
		w.endpoints = append(w.endpoints, e.Addr)
	}
	if len(w.endpoints) == 0 {
		return want{}
	}
	return w
}

func loopback(f model.Family) netip.Addr {
	if f == model.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
