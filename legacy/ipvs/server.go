package ipvs

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Key identifies a virtual server by its address, protocol and port. Those by packet marks are other programs'.
type Key = model.VIP

func compareKeys(a, b Key) int { return model.VIPKeys.Compare(a, b) }

// Flags of a virtual server have the kernel's numbers (IP_VS_SVC_F_…). The kernel sets another
// one, 0x2, which readers must mask out.
type Flags uint32

// The flags. Those of the schedulers sh and mh have the same numbers.
const (
	Persistent Flags = 1 << 0
	Fallback   Flags = 1 << 3 // IP_VS_SVC_F_SCHED1: sh-fallback, mh-fallback
	HashPort   Flags = 1 << 4 // IP_VS_SVC_F_SCHED2: sh-port, mh-port
)

// A Server is a virtual server. Its persistence is always for the whole client address (IPv4
// netmask 255.255.255.255, IPv6 128).
type Server struct {
	Scheduler string
	Flags     Flags
	Timeout   time.Duration          // of persistence; whole seconds, 0 without Persistent
	Real      map[netip.AddrPort]int // weights of its real servers; all use NAT (ipvsadm -m)
	Protocol  model.Protocol         // of its connections; 0 if unknown
}

// sameAs reports whether two servers are configured alike, apart from their real servers.
func (s Server) sameAs(o Server) bool {
	return s.Scheduler == o.Scheduler && s.Flags == o.Flags && s.Timeout == o.Timeout
}

// weight is the weight of every real server, since Services have no weights. A real server that
// drains has 0.
const weight = 1

// schedulerFlags are needed because a real server that drains has weight 0 and stays in
// the tables of sh and mh: without fallback its clients would be refused
// (ip_vs_sh_get). As with kube-proxy, mh hashes the client's port as well, except for model.Maglev.
func schedulerFlags(scheduler string) Flags {
	switch scheduler {
	case "sh":
		return Fallback
	case "mh":
		return Fallback | HashPort
	}
	return 0
}

// addrServer returns the virtual server for a frontend's address. A frontend that refuses or drops keeps its virtual
// server, for the connections of real servers that drain. The companion stops new connections, but those from inside
// to a frontend with ShortCircuit: they have no endpoint on this node, and get the cluster's.
func (o Options) addrServer(sp *model.ServicePort, fe model.Frontend) Server {
	scheduler := o.scheduler(sp.Algorithm)
	s := Server{
		Scheduler: scheduler, Flags: schedulerFlags(scheduler), Timeout: sp.Affinity, Protocol: sp.Name.Protocol,
		Real: map[netip.AddrPort]int{},
	}
	if sp.Algorithm == model.Maglev {
		s.Flags &^= HashPort
	}
	if sp.Affinity > 0 {
		s.Flags |= Persistent
	}
	list := model.Cluster
	if fe.Action == model.Forward {
		list = fe.TrafficPolicy
	}
	if fe.Action == model.Forward || fe.ShortCircuit {
		for e := range sp.In(list) {
			s.Real[e.Addr] = weight
		}
	}
	return s
}

// drains reports whether a real server that leaves may finish its connections. Those of UDP
// and SCTP have no end to wait for. dh does not look for another real server if its table has
// one of weight 0, so new clients would be refused meanwhile.
func (s Server) drains() bool {
	return s.Protocol != model.UDP && s.Protocol != model.SCTP && s.Scheduler != "dh"
}
