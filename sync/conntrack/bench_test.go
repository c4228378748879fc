package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// BenchmarkOneEndpoint is a pass over 100 flows of one of 2,000 endpoints, asked for by name, and in a listing of all.
// cpu-ms is processor time, also of the kernel.
func BenchmarkOneEndpoint(b *testing.B) {
	const flows, endpoints = 200_000, 2000
	n := newNamespace(b)
	allow(b, flows+10_000)
	pod := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8053)
	}
	like := parse(b, datagrams)
	n.create(b, flows, func(i int) Flow {
		f := like
		f.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 16), byte(i >> 8)}), uint16(1024+i%256))
		f.ReplyDest, f.ReplySource = f.Source, pod(i%endpoints)
		return f
	})
	stays := func(*Flow) bool { return false }
	for name, q := range map[string]Filter{
		"by name": {Protocol: model.UDP, Endpoint: pod(7)}, "all": {Protocol: model.UDP},
	} {
		b.Run(name, func(b *testing.B) {
			t := n.open(b)
			before := processorTime(b)
			for b.Loop() {
				if seen, _, _, err := t.sweep(b.Context(), model.IPv4, q, stays); seen < flows/endpoints || err != nil {
					b.Fatalf("%d flows, %v", seen, err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
