package health

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// many returns a Services with listeners for n Services, on ports of the kernel's choice,
// and a builder that has these. The last to be changed is number 0.
func many(b *testing.B, n int) (*Services, *model.Builder) {
	b.Helper()
	builder := modeltest.Builder(modeltest.Config())
	for i := range n {
		service(fmt.Sprintf("ns1/s%d", i), uint16(1+i)).Set(builder)
	}
	s := NewServices(ServicesOptions{Healthy: func() bool { return true }})
	s.listen = func(ctx context.Context, _ netip.AddrPort) (net.Listener, error) {
		return listenTCP(ctx, netip.MustParseAddrPort("127.0.0.1:0"))
	}
	apply(s, builder)
	b.Cleanup(func() {
		for _, f := range model.Families {
			for _, c := range s.families[f].checks {
				c.closeBut()
			}
		}
	})
	return s, builder
}

// apply does what Run does with a round.
func apply(s *Services, b *model.Builder) {
	s.Done(reconcile.Round{Snapshot: b.Snapshot()})
	s.update()
	s.openMissing(context.Background())
}

// One of 2000 Services has an endpoint more, or less.
func BenchmarkOneChange(b *testing.B) {
	s, builder := many(b, 2000)
	for i := 0; b.Loop(); i++ {
		pods := []string{"10.0.0.2", "10.0.0.3"}
		local("ns1/s7", pods[:1+i%2]...).Set(builder)
		apply(s, builder)
	}
}

// The memory of this process for one Service; the kernel's for a socket is not in it.
func BenchmarkMemory(b *testing.B) {
	const n = 2000
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, _ := many(b, n)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
	}
	b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/n, "bytes/service")
}
