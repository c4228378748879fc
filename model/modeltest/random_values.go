package modeltest

import "fmt"

func (r *Random) name() string {
	if r.bad() {
		return pick(r, []string{"ns1/we\"b", "ns1/web\nadd table", "NS1/web", "/web", "ns1/"})
	}
	return pick(r, []string{"ns1", "ns2"}) + "/" + pick(r, []string{"web", "db", "dns", "api"})
}

func (r *Random) portName() string {
	if r.bad() {
		return pick(r, []string{"\"", "a\nb", "HTTP"})
	}
	return pick(r, []string{"", "http", "dns"})
}

// protocol is most often the one of the port's name: otherwise few slices would have the
// ports of Services.
func (r *Random) protocol(port string) string {
	switch {
	case r.bad():
		return pick(r, []string{"tcp", "ICMP", "\n"})
	case r.IntN(8) == 0:
		return pick(r, []string{"TCP", "UDP", "SCTP", ""})
	case port == "dns":
		return "UDP"
	}
	return "TCP"
}

func (r *Random) number(good ...int32) int32 {
	if r.bad() {
		return pick(r, []int32{0, -1, 70000, 65536})
	}
	return pick(r, good)
}

// addr returns one of n addresses with a prefix, sometimes with leading zeros as in old
// objects.
func (r *Random) addr(prefix, zeros string, n int) string {
	if r.bad() {
		return pick(r, []string{
			"", "nowhere", "0.0.0.0", "::", "127.0.0.1", "ff02::1", "fe80::1%eth0", "10.0.0.9",
			"fd00:10::9", "1.2.3.4.5",
		})
	}
	last := fmt.Sprint(2 + r.IntN(n))
	if r.IntN(16) == 0 {
		last = zeros + last
	}
	return prefix + last
}

// shared returns an external address that is also an address of the node, where a port of one
// Service may be the node port of another, or an address of a pod, where the destination may
// already be the endpoint.
func (r *Random) shared() string {
	return pick(r, []string{
		NodeIP4, NodeIP4, NodeIP6, r.addr("10.0.0.", "", 4), r.addr("10.0.0.", "", 4),
		r.addr("fd00:10::", "", 2),
	})
}

func (r *Random) bad() bool { return r.IntN(32) == 31 }

func pick[T any](r *Random, from []T) T { return from[r.IntN(len(from))] }
