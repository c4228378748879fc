package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func familyOf(network string) model.Family {
	if network[3] == '6' {
		return model.IPv6
	}
	return model.IPv4
}

// Connections that are there go on, whatever becomes of the endpoints, also of their own:
// a pod that is about to end finishes what it has begun.
func TestConnectionsInFlightSurviveEndpointChanges(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		t.Run(fmt.Sprintf("affinity %v", sticky), func(t *testing.T) {
			p := vmapdtest.NewPlane(t, 4, vmapdtest.LabConfig(), 8080)
			service := vmapdtest.Web()
			if sticky {
				service = service.Sticky(60)
			}
			p.Set(t, append(vmapdtest.WebSlices([]int{1, 2, 3}), service)...)
			type flow struct {
				*lab.Conn
				network, pod string
			}
			var flows []flow
			seen := map[string]bool{}
			for try := 0; len(seen) < 3*len(vmapdtest.Networks) && try < 100 || try < 3; try++ {
				for _, network := range vmapdtest.Networks {
					for _, dest := range vmapdtest.Frontends(familyOf(network)) {
						c, err := p.Client.Dial(t.Context(), network, dest)
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						a, err := c.Ask(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						flows = append(flows, flow{c, network, a.Pod})
						seen[network+a.Pod] = true
					}
				}
				if sticky && try == 3 {
					break // one client sees one pod
				}
			}
			for _, pods := range [][]int{{1, 2, 3, 4}, {2, 3, 4}, {3, 4}, {4}, {1, 2}, {}, {1, 2, 3}} {
				p.Set(t, vmapdtest.WebSlices(pods)...)
				for _, f := range flows {
					a, err := f.Ask(t.Context())
					if err != nil {
						t.Fatalf("endpoints %v: %v", pods, err)
					}
					if a.Pod != f.pod {
						t.Fatalf("endpoints %v: a %s flow went from %s to %s", pods, f.network, f.pod, a.Pod)
					}
				}
			}
			t.Logf("%d flows", len(flows))
		})
	}
}

// clientAddrs gives the client more addresses, and returns all of a family.
func clientAddrs(t *testing.T, w *lab.World, f model.Family, n int) []netip.Addr {
	t.Helper()
	a := netip.MustParseAddr([]string{lab.ClientIP4, lab.ClientIP6}[f])
	list := []netip.Addr{a}
	for range n - 1 {
		a = a.Next()
		if err := w.AddClientAddr(a); err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// While 500 new connections a second come in, the endpoints change again and again. All
// pods are alive, so that none must be lost.
func TestNoConnectionIsLostWhileEndpointsChange(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: needs a machine that does nothing else, and takes a minute")
	}
	const changes = 1000
	const (
		pods = 6
		rate = 500
		pace = 5 * time.Millisecond
		// A machine that is busy with other things stalls for seconds, and loses nothing.
		// Over UDP, what is lost is not sent again.
		overload = 20 * time.Second
	)
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		clients int
	}{
		{"plain", vmapdtest.Web(), 1},
		{"affinity", vmapdtest.Web().Sticky(60), 24},
		{"externally local", vmapdtest.Web().Policies("Cluster", "Local"), 1},
		{"affinity, externally local", vmapdtest.Web().Policies("Cluster", "Local").Sticky(60), 24},
		{"maglev-port", vmapdtest.Web().Algorithm("maglev-port"), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := vmapdtest.NewPlane(t, pods, vmapdtest.LabConfig(), 8080)
			p.Set(t, append(vmapdtest.WebSlices([]int{1, 2, 3}), tt.service)...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients [len(model.Families)][]netip.Addr
			for _, f := range model.Families {
				clients[f] = clientAddrs(t, p.World, f, tt.clients)
			}
			reports := make([]lab.Report, len(vmapdtest.Networks))
			var wait sync.WaitGroup
			for i, network := range vmapdtest.Networks {
				from, to := clients[familyOf(network)], vmapdtest.Frontends(familyOf(network))
				var n atomic.Int64
				load := lab.Load{Rate: rate / len(vmapdtest.Networks), Timeout: overload, Ask: func(ctx context.Context) (lab.Answer, error) {
					i := int(n.Add(1))
					source, to := from[i%len(from)], to[i/len(from)%len(to)]
					if tt.service.SessionAffinity == "" || strings.HasPrefix(network, "tcp") {
						return p.Client.AskFrom(ctx, source, network, to)
					}
					// The first datagram of a client whose endpoint has just gone is dropped.
					first, cancel := context.WithTimeout(ctx, overload/4)
					defer cancel()
					got, err := p.Client.AskFrom(first, source, network, to)
					if err == nil {
						return got, nil
					}
					return p.Client.AskFrom(ctx, source, network, to)
				}}
				wait.Go(func() { reports[i] = load.Run(ctx) })
			}
			r := rand.New(rand.NewPCG(1, 2))
			var slowest, total time.Duration
			start := time.Now()
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for i := range changes {
				next := []int{1 + i%pods, 1 + (i+1)%pods, 1 + (i+2)%pods} // one is replaced by another
				if i%3 == 2 {
					next = r.Perm(pods)[:1+r.IntN(pods)] // more or fewer, and others
					for i := range next {
						next[i]++
					}
				}
				began := time.Now()
				p.Set(t, vmapdtest.WebSlices(next)...)
				took := time.Since(began)
				slowest, total = max(slowest, took), total+took
				<-tick.C
			}
			elapsed := time.Since(start)
			p.Set(t, vmapdtest.WebSlices([]int{4, 5})...) // clients of the sixth are forgotten
			if tt.service.SessionAffinity != "" {
				mustRememberOnly(t, p, 4, 5)
			}
			stop()
			wait.Wait()
			sent := 0
			for i, network := range vmapdtest.Networks {
				r := &reports[i]
				sent += r.Sent
				t.Logf("%s: %v", network, r)
				if r.Lost() > 0 {
					t.Errorf("%s: %d connections of %d were lost", network, r.Lost(), r.Sent)
				}
				if r.Sent == 0 || len(r.Answered) < 3 {
					t.Errorf("%s: only %v answered: nothing is tested", network, r.Answered)
				}
			}
			t.Logf("%d changes in %v (each %v on average, %v at most), %d connections, %.0f a second", changes, elapsed.Round(time.Millisecond),
				(total / time.Duration(changes)).Round(time.Microsecond), slowest.Round(time.Microsecond), sent, float64(sent)/elapsed.Seconds())
		})
	}
}
