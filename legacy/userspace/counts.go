package userspace

import (
	"cmp"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// Count has the new connections to one service port since this process serves it: connections of TCP, and
// clients of UDP. Each is in one of the figures. Connections to a service port without endpoints are in none,
// as the kernel refuses them for want of a listener.
type Count struct {
	Name   model.ServicePortName
	Family model.Family
	// Forwarded were connected to an endpoint.
	Forwarded uint64
	// Refused found no endpoint, as the last one had just left.
	Refused uint64
	// Dropped are first packets of TCP, repeated ones included, and datagrams of clients whom source ranges
	// or a policy Local do not admit. TCP connections that were reset in place of that are here, too.
	Dropped uint64
	// Failed found endpoints of which none accepted.
	Failed uint64
}

// outcomes are the figures of a Count.
type outcomes struct {
	forwarded, refused, dropped, failed atomic.Uint64
}

// refuse notes a decision that is not to forward.
func (o *outcomes) refuse(v model.Verdict) {
	if v == model.Dropped {
		o.dropped.Add(1)
		return
	}
	o.refused.Add(1)
}

// Counts returns the counts of all service ports that are served and counted, in the order of families and names.
func (f *Forwarder) Counts() []Count {
	f.mu.Lock()
	for _, e := range f.entries {
		e.collectDropped()
	}
	list := make([]Count, 0, len(f.ports))
	for key, p := range f.ports {
		sp, _ := f.applied.Family(key.family).ServicePort(key.name)
		if len(p.places) > 0 && sp != nil && !sp.Uncounted {
			list = append(list, p.count(key))
		}
	}
	f.mu.Unlock()
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name),
			cmp.Compare(a.Name.Port, b.Name.Port), cmp.Compare(a.Name.Protocol, b.Name.Protocol))
	})
	return list
}

// CountOf returns the count of one service port; false if it is not served.
func (f *Forwarder) CountOf(family model.Family, name model.ServicePortName) (Count, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := portKey{family, name}
	p := f.ports[key]
	if p == nil || len(p.places) == 0 {
		return Count{}, false
	}
	for _, at := range p.places {
		if e := f.entries[at.VIP]; e != nil {
			e.collectDropped()
		}
	}
	return p.count(key), true
}

func (p *port) count(key portKey) Count {
	o := &p.outcomes
	return Count{key.name, key.family, o.forwarded.Load(), o.refused.Load(), o.dropped.Load(), o.failed.Load()}
}

// collectDropped adds the packets that the kernel has dropped at the listener since the last call to the
// count of the one who is served.
func (e *entry) collectDropped() {
	l, ok := e.listener.(*connListener)
	if !ok {
		return
	}
	now := l.droppedByKernel()
	e.owner.Load().outcomes.dropped.Add(uint64(now - l.dropped)) // 32 bits, which begin again at 0
	l.dropped = now
}

// droppedByKernel returns how many packets the kernel has dropped at the listener because of its filter or,
// which is the same figure, for want of room in its queue: only the first are meant, so a listener without
// a filter has none. It is 0 where the kernel does not tell (SO_MEMINFO, Linux 4.12).
func (l *connListener) droppedByKernel() uint32 {
	if !l.sieved.Load() {
		return 0
	}
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return l.dropped
	}
	n := l.dropped
	_ = raw.Control(func(fd uintptr) {
		if drops, err := socketDrops(int(fd)); err == nil {
			n = drops
		}
	})
	return n
}

// socketDrops returns a socket's count of dropped packets.
func socketDrops(fd int) (uint32, error) {
	const drops = 8 // SK_MEMINFO_DROPS of include/uapi/linux/sock_diag.h
	var info [drops + 1]uint32
	if _, err := readOption(fd, unix.SOL_SOCKET, unix.SO_MEMINFO, info[:]); err != nil {
		return 0, err
	}
	return info[drops], nil
}
