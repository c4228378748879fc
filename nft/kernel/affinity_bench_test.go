package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// manyService is one of n endpoints on 172.30.1.x, with affinity or without.
func manyService(b *model.Builder, x, n int, affinity bool) netip.Addr {
	name := model.NamespacedName{Namespace: "default", Name: fmt.Sprintf("many-%d", x)}
	addr := netip.AddrFrom4([4]byte{172, 30, 1, byte(x)})
	service := model.Service{
		NamespacedName: name, ClusterIPs: []string{addr.String()},
		Ports: []model.Port{{Name: "udp", Protocol: "UDP", Port: 80}},
	}
	if affinity {
		service.SessionAffinity = "ClientIP"
	}
	b.SetService(service)
	manySlice(b, x, n, 0)
	return addr
}

// manySlice sets its endpoints; the last one is another for each version.
func manySlice(b *model.Builder, x, n, version int) {
	name := fmt.Sprintf("many-%d", x)
	slice := model.EndpointSlice{
		NamespacedName: model.NamespacedName{Namespace: "default", Name: name}, AddressType: "IPv4",
		Labels: map[string]string{model.LabelServiceName: name},
		Ports:  []model.SlicePort{{Name: new("udp"), Protocol: new("UDP"), Port: new(int32(8080))}},
	}
	for i := range n {
		if i == n-1 {
			i += version
		}
		a := netip.AddrFrom4([4]byte{10, byte(x), byte(i >> 8), byte(i)})
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{Addresses: []string{a.String()}, NodeName: "node-2"})
	}
	b.SetEndpointSlice(slice)
}

// injector sends first packets of UDP connections, past the socket that a client would
// need for each: by a raw socket, from any address and port. What a packet costs is then
// the way through the kernel, from output over the rules and connection tracking into an
// interface that leads nowhere.
type injector struct {
	fd        int
	conntrack *netlink.Conn
	packet    []byte
	next      uint16 // source port
}

func newInjector(b *testing.B, n netns) *injector {
	b.Helper()
	n.nowhere(b)
	j := &injector{packet: make([]byte, 28)}
	n.do(b, func() error {
		var err error
		if j.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW); err != nil {
			return err
		}
		j.conntrack, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
	b.Cleanup(func() {
		unix.Close(j.fd)
		_ = j.conntrack.Close()
	})
	p := j.packet
	p[0], p[8], p[9] = 4<<4|5, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[24:], 8)
	return j
}

// forget empties the connection tracking table.
func (j *injector) forget(b *testing.B) {
	b.Helper()
	const ctnetlink, ctDelete = 1, 2 // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
	_, err := j.conntrack.Execute(netlink.Message{
		Header: netlink.Header{Type: ctnetlink<<8 | ctDelete, Flags: netlink.Request | netlink.Acknowledge},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		b.Fatal(err)
	}
}

// send makes so many new connections, each from another address if clients are many, and
// returns what one takes.
func (j *injector) send(b *testing.B, to netip.AddrPort, count int, many bool) time.Duration {
	b.Helper()
	dest := to.Addr().As4()
	copy(j.packet[16:], dest[:])
	binary.BigEndian.PutUint16(j.packet[22:], to.Port())
	name := &unix.SockaddrInet4{Addr: dest}
	start := time.Now()
	for i := range count {
		j.next++
		client := uint32(203<<24 | 1)
		if many {
			client += uint32(i)
		}
		binary.BigEndian.PutUint32(j.packet[12:], client)
		binary.BigEndian.PutUint16(j.packet[20:], 1024+j.next%60000)
		if err := unix.Sendto(j.fd, j.packet, 0, name); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(start) / time.Duration(count)
}

// BenchmarkNewConnection measures the first packet of a connection to Services with and
// without affinity, of few and of many endpoints, and to a pod directly, in turns; and beside
// them, in a namespace without vmapd, the least that a kernel takes to translate an address: one
// rule with a constant. One operation is a round of all of them; the figures are medians.
func BenchmarkNewConnection(b *testing.B) {
	n, least := newNetNS(b), newNetNS(b)
	j, one := newInjector(b, n), newInjector(b, least)
	builder := model.NewBuilder(model.Config{})
	pod := netip.MustParseAddrPort("10.9.0.2:8080")
	service := func(x, endpoints int, affinity bool) netip.AddrPort {
		return netip.AddrPortFrom(manyService(builder, x, endpoints, affinity), 80)
	}
	ways := []way{
		{name: "direct", to: pod, by: j},
		{name: "2", to: service(1, 2, false), by: j},
		{name: "1000", to: service(2, 1000, false), by: j},
		{name: "affinity-2", to: service(3, 2, true), by: j},
		{name: "affinity-1000", to: service(4, 1000, true), by: j},
		{name: "affinity-2-clients", to: service(5, 2, true), by: j, many: true},
		{name: "affinity-1000-clients", to: service(6, 1000, true), by: j, many: true},
		{name: "least-direct", to: pod, by: one},
		{name: "least", to: netip.MustParseAddrPort("172.30.1.1:80"), by: one},
	}
	least.nft(b, `table ip least {
		chain output { type nat hook output priority -100; ip daddr 172.30.1.1 udp dport 80 dnat to 10.9.0.2:8080; }
		chain postrouting { type nat hook postrouting priority srcnat; }
	}`, "-f", "-")
	backend := open(b, n)
	apply(b, backend, builder.Snapshot())
	const count = 1000
	median := inTurns(b, ways, count)
	if got := len(n.clients(b, model.IPv4, "affinity-default/many-6/udp/udp")); got != count {
		b.Fatalf("%d clients are remembered, want %d: the packets do not go where they should", got, count)
	}
	for _, w := range ways {
		b.ReportMetric(median[w.name], "ns/"+w.name)
	}
	for _, r := range [][2]string{
		{"2", "direct"},
		{"1000", "direct"},
		{"1000", "2"},
		{"affinity-1000", "direct"},
		{"affinity-1000", "1000"},
		{"affinity-1000", "affinity-2"},
		{"affinity-1000-clients", "affinity-2-clients"},
		{"least", "least-direct"},
	} {
		b.ReportMetric(median[r[0]]/median[r[1]], r[0]+":"+r[1])
	}
	b.ReportMetric(0, "ns/op")
}

// way is one of several for first packets.
type way struct {
	name string
	to   netip.AddrPort
	by   *injector
	many bool // clients, each new in the first round
}

// inTurns makes so many new connections in each way in each operation, beginning with another one
// each time, and returns the medians of what one takes, in nanoseconds.
func inTurns(b *testing.B, ways []way, count int) map[string]float64 {
	b.Helper()
	took := map[string][]time.Duration{}
	for round := 0; b.Loop(); round++ {
		for i := range ways {
			w := ways[(i+round)%len(ways)]
			took[w.name] = append(took[w.name], w.by.send(b, w.to, count, w.many))
			b.StopTimer()
			w.by.forget(b)
			b.StartTimer()
		}
	}
	median := map[string]float64{}
	for name, list := range took {
		slices.Sort(list)
		median[name] = float64(list[len(list)/2].Nanoseconds())
	}
	return median
}

// BenchmarkOneEndpointWithAffinity goes from a changed EndpointSlice to the end of Apply:
// one endpoint of 1,000 is replaced, while so many clients are remembered.
func BenchmarkOneEndpointWithAffinity(b *testing.B) {
	const endpoints = 1000
	for _, tt := range []struct {
		name     string
		affinity bool
		clients  int
	}{{"without", false, 0}, {"clients-0", true, 0}, {"clients-1000", true, 1_000}, {"clients-60000", true, 60_000}} {
		b.Run(tt.name, func(b *testing.B) {
			n := newNetNS(b)
			backend := open(b, n)
			builder := model.NewBuilder(model.Config{})
			manyService(builder, 1, endpoints, tt.affinity)
			apply(b, backend, builder.Snapshot())
			if tt.affinity {
				const name = "affinity-default/many-1/udp/udp"
				list := make([]noted, tt.clients)
				for i := range list {
					list[i] = noted{client: i, lasts: time.Hour, left: time.Hour}
				}
				noteAt(b, backend, model.IPv4, name, list, func(c noted) netip.AddrPort {
					return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(c.client)}), 8080)
				})
			}
			version := 0
			for b.Loop() {
				version++
				manySlice(builder, 1, endpoints, version%10)
				if err := backend.Apply(b.Context(), builder.Snapshot()); err != nil {
					b.Fatal(err)
				}
			}
			if got := backend.Stats(model.IPv4).Batches; got < uint64(version) {
				b.Fatalf("%d batches for %d changes", got, version)
			}
		})
	}
}
