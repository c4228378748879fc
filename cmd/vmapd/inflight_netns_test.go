package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// plane is a world whose node is programmed by a backend of this process.
type plane struct {
	*lab.World
	builder *model.Builder
	backend *kernel.Backend
}

func newPlane(t *testing.T, pods int, config model.Config, ports ...uint16) *plane {
	t.Helper()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	w, err := lab.New(t.Context(), lab.Config{Pods: pods, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{World: w, builder: modeltest.Builder(config, modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6))}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	p.backend = openKernel(t, w.Node, kernel.Options{})
	return p
}

// openKernel opens a backend for a namespace, where it opens all its sockets, also later ones. It purges its maps of
// clients, as the daemon does.
func openKernel(t *testing.T, node *lab.Namespace, o kernel.Options) *kernel.Backend {
	t.Helper()
	b := openUnpurged(t, node, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { b.RunPurges(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

func openUnpurged(t *testing.T, node *lab.Namespace, o kernel.Options) *kernel.Backend {
	t.Helper()
	var namespace *os.File
	if err := node.Do(func() (err error) {
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	o.NetNS = int(namespace.Fd())
	b, err := kernel.Open(o)
	if err != nil {
		t.Fatal(errors.Join(err, namespace.Close()))
	}
	t.Cleanup(func() { _ = errors.Join(b.Close(), namespace.Close()) })
	return b
}

// set sets objects and programs what follows from them.
func (p *plane) set(t *testing.T, objects ...modeltest.Object) {
	t.Helper()
	for _, o := range objects {
		o.Set(p.builder)
	}
	if err := p.backend.Apply(t.Context(), p.builder.Snapshot()); err != nil {
		t.Fatal(err)
	}
}

// labConfig is the lab's: pods are told by their addresses.
func labConfig() model.Config {
	c := modeltest.Config()
	c.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(lab.PodRange4), netip.MustParsePrefix(lab.PodRange6)}
	return c
}

// web is a Service that can be reached in every way, over TCP and UDP.
func web() modeltest.Service {
	return modeltest.NewService("default/web").Typed("LoadBalancer").On("172.30.0.41", "fd00:172:30::41").
		LoadBalancer("192.168.98.41", "fd00:192:168:98::41").External("192.168.99.41", "fd00:192:168:99::41").
		TCP("tcp", 80).NodePort(30080).UDP("udp", 80).NodePort(30080)
}

// frontends are its addresses.
func frontends(f model.Family) []netip.AddrPort {
	addrs := []string{"172.30.0.41:80", "192.168.98.41:80", "192.168.99.41:80", "192.168.0.2:30080"}
	if f == model.IPv6 {
		addrs = []string{"[fd00:172:30::41]:80", "[fd00:192:168:98::41]:80", "[fd00:192:168:99::41]:80", "[fd00:192:168::2]:30080"}
	}
	var list []netip.AddrPort
	for _, a := range addrs {
		list = append(list, netip.MustParseAddrPort(a))
	}
	return list
}

// webSlices are its endpoints: the pods of these numbers, from 1 on, all on our node
// unless elsewhere has them.
func webSlices(pods []int, elsewhere ...int) []modeltest.Object {
	var slices []modeltest.Object
	for _, f := range model.Families {
		s := modeltest.NewSlice("default/web-"+f.String(), "web").Typed(f.String()).TCP("tcp", 8080).UDP("udp", 8080)
		for _, n := range pods {
			node := modeltest.NodeName
			for _, e := range elsewhere {
				if e == n {
					node = "node-2"
				}
			}
			s = s.Endpoint(modeltest.Pod(f, n-1).String(), modeltest.OnNode(node))
		}
		slices = append(slices, s)
	}
	return slices
}

var networks = []string{"tcp4", "tcp6", "udp4", "udp6"}

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
			p := newPlane(t, 4, labConfig(), 8080)
			service := web()
			if sticky {
				service = service.Sticky(60)
			}
			p.set(t, append(webSlices([]int{1, 2, 3}), service)...)
			type flow struct {
				*lab.Conn
				network, pod string
			}
			var flows []flow
			seen := map[string]bool{}
			for try := 0; len(seen) < 3*len(networks) && try < 100 || try < 3; try++ {
				for _, network := range networks {
					for _, dest := range frontends(familyOf(network)) {
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
				p.set(t, webSlices(pods)...)
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
func TestNoConnectionIsLostWhileEndpointsChange(t *testing.T) { loseNothing(t, 250) }

// So many changes take half a minute.
func TestNoConnectionIsLostInAThousandChanges(t *testing.T) { loseNothing(t, 1000) }

func loseNothing(t *testing.T, changes int) {
	t.Helper()
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
		{"plain", web(), 1},
		{"affinity", web().Sticky(60), 24},
		{"externally local", web().Policies("Cluster", "Local"), 1},
		{"affinity, externally local", web().Policies("Cluster", "Local").Sticky(60), 24},
		{"maglev-port", web().Algorithm("maglev-port"), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t, pods, labConfig(), 8080)
			p.set(t, append(webSlices([]int{1, 2, 3}), tt.service)...)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients [len(model.Families)][]netip.Addr
			for _, f := range model.Families {
				clients[f] = clientAddrs(t, p.World, f, tt.clients)
			}
			reports := make([]lab.Report, len(networks))
			var wait sync.WaitGroup
			for i, network := range networks {
				from, to := clients[familyOf(network)], frontends(familyOf(network))
				var n atomic.Int64
				load := lab.Load{Rate: rate / len(networks), Timeout: overload, Ask: func(ctx context.Context) (lab.Answer, error) {
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
				p.set(t, webSlices(next)...)
				took := time.Since(began)
				slowest, total = max(slowest, took), total+took
				<-tick.C
			}
			elapsed := time.Since(start)
			p.set(t, webSlices([]int{4, 5})...) // clients of the sixth are forgotten
			if tt.service.SessionAffinity != "" {
				p.mustRememberOnly(t, 4, 5)
			}
			stop()
			wait.Wait()
			sent := 0
			for i, network := range networks {
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
