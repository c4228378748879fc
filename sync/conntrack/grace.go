package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

// leaver is an endpoint of TCP or SCTP that a frontend no longer leads to. Its connections may stay for a
// while. The zero endpoint stands for all that left before this process knew the frontend.
type leaver struct {
	frontend model.VIP
	endpoint netip.AddrPort
}

// departure is of a service port, and until when connections to the leaver may stay.
type departure struct {
	from  model.ServicePortName
	until time.Time
}

// leave notes the endpoints of TCP or SCTP that have ceased to serve. If the Service stays and no longer asks
// for the end of connections, they may go on.
func (f *family) leave(before, after *model.ServicePort, stays bool, now time.Time) {
	sp := cmp.Or(after, before)
	if after == nil && stays {
		maps.DeleteFunc(f.leaving, func(_ leaver, d departure) bool { return d.from == sp.Name })
		return
	}
	grace, _ := sp.EndsStale()
	d := departure{sp.Name, now.Add(grace)}
	if before == nil {
		for vip := range vips(after) {
			f.leaving[leaver{frontend: vip}] = d
		}
	}
	for a := range serving(before) {
		if after.Serves(a) {
			continue
		}
		for vip := range vips(before) {
			f.leaving[leaver{vip, a}] = d
		}
	}
}

// isDue reports whether connections to a leaver must end. While the kernel refuses the service port, its old
// rules are in force.
func (f *family) isDue(d departure, now time.Time) bool {
	return !now.Before(d.until) && !f.refused[d.from]
}

// next returns when the next connections must end; zero: none wait for it.
func (f *family) next() (at time.Time) {
	for _, d := range f.leaving {
		if !f.refused[d.from] && (at.IsZero() || d.until.Before(at)) {
			at = d.until
		}
	}
	return at
}

// departed returns when an endpoint left a frontend, or the node port.
func (f *family) departed(vip model.VIP, endpoint netip.AddrPort) (d departure, ok bool) {
	d, ok = f.leaving[leaver{vip, endpoint}]
	if !ok && slices.Contains(f.applied.NodePortAddrs, vip.Addr) {
		d, ok = f.leaving[leaver{nodePort(vip), endpoint}]
	}
	return d, ok
}
