package localhost

import "time"

// limits bound the cost of a client or a dead endpoint. Tests have lower ones.
type limits struct {
	conns   int           // TCP connections of a node port at a time
	clients int           // UDP clients of a node port at a time
	attempt time.Duration // for connecting to one endpoint
	connect time.Duration // for connecting to any endpoint
	grace   time.Duration // for the data in a connection's other direction, after one broke
	idle    time.Duration // without a datagram, after which a UDP client is forgotten
}

func defaultLimits() limits {
	return limits{
		conns:   1024,
		clients: 4096,
		attempt: 2 * time.Second, // a lost SYN is sent again after one
		connect: 10 * time.Second,
		grace:   250 * time.Millisecond,
		idle:    120 * time.Second, // net.netfilter.nf_conntrack_udp_timeout_stream
	}
}
