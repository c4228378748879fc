package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// What model.Decide says about a connection is what becomes of a real one, in random
// clusters whose addresses the lab has.

// randomLab makes clusters of the lab's addresses.
type randomLab struct{ *rand.Rand }

func choose[T any](r randomLab, from ...T) T { return from[r.IntN(len(from))] }

// config is of each detection mode in turn.
func (r randomLab) config(n int) model.Config {
	c := modeltest.Config()
	c.MasqueradeAll, c.DropInvalid = r.IntN(4) == 0, r.IntN(4) == 0
	c.NodePortAddresses.All = r.IntN(2) == 0
	c.Algorithm = choose(r, model.Random, model.Random, model.Maglev, model.MaglevPort)
	switch n % 5 {
	case 0:
		c.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix(lab.PodRange4), netip.MustParsePrefix(lab.PodRange6)}
	case 1:
		c.LocalPods.Mode = model.ByNodeCIDR
	case 2:
		c.LocalPods = model.LocalPods{Mode: model.ByInterfacePrefix, Interface: lab.PodLinkPrefix}
	case 3:
		c.LocalPods = model.LocalPods{Mode: model.ByBridge, Interface: lab.PodLinkPrefix + "2"} // of one pod only
	case 4: // pods can't be told
	}
	return c
}

func (r randomLab) objects() []modeltest.Object {
	// The range has two pods of three.
	list := []modeltest.Object{
		modeltest.OurNode().In("zone-a").Pods("10.0.0.2/31", "fd00:10::2/127"),
		modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6),
	}
	for i := range 3 {
		name := fmt.Sprintf("default/web-%d", i)
		list = append(list, r.service(name, i))
		for _, f := range model.Families {
			if r.IntN(8) > 0 {
				list = append(list, r.slice(name, f))
			}
		}
	}
	return list
}

func (r randomLab) service(name string, i int) modeltest.Service {
	n := 41 + i
	s := modeltest.NewService(name).Typed("LoadBalancer").CreatedAt(i).
		On(fmt.Sprintf("172.30.0.%d", n), fmt.Sprintf("fd00:172:30::%d", n)).
		LoadBalancer(fmt.Sprintf("192.168.98.%d", n), fmt.Sprintf("fd00:192:168:98::%d", n)).
		External(fmt.Sprintf("192.168.99.%d", n), fmt.Sprintf("fd00:192:168:99::%d", n)).
		Policies(choose(r, "Cluster", "Local"), choose(r, "Cluster", "Local")).
		TCP("tcp", 80).NodePort(int32(30080+i)).UDP("udp", 53).NodePort(int32(30080 + i))
	if r.IntN(3) == 0 {
		s = s.Sticky(choose(r, int32(1), 60, 10800))
	}
	if r.IntN(3) == 0 {
		s = s.Algorithm(choose(r, "random", "maglev", "maglev-port"))
	}
	if r.IntN(3) == 0 {
		ranges := []string{
			"203.0.113.0/24", "203.0.113.9/32", "203.0.113.128/25", "10.0.0.2/31", "10.0.0.4/32", "192.168.0.2/32",
			"2001:db8:203::/64", "2001:db8:203::9/128", "fd00:10::2/127", "fd00:192:168::2/128", "::/0", "0.0.0.0/0",
		}
		for range 1 + r.IntN(3) {
			s = s.Ranges(append(slices.Clip(s.SourceRanges), choose(r, ranges...))...)
		}
	}
	return s
}

func (r randomLab) slice(service string, f model.Family) modeltest.Slice {
	s := modeltest.NewSlice(service+"-"+f.String(), modeltest.Name(service).Name).Typed(f.String()).
		TCP("tcp", choose(r, int32(8080), 8081)).UDP("udp", choose(r, int32(8080), 8081)).TCP("other", choose(r, int32(8080), 8081))
	hints := r.IntN(3)
	for i := range podCount {
		if r.IntN(4) == 0 {
			continue
		}
		node := modeltest.OnNode(choose(r, modeltest.NodeName, modeltest.NodeName, "node-2"))
		options := []func(*model.SliceEndpoint){node}
		switch hints {
		case 1:
			options = append(options, modeltest.ForZones(choose(r, "zone-a", "zone-b")))
		case 2:
			options = append(options, modeltest.ForNodes(choose(r, modeltest.NodeName, "node-2")), modeltest.ForZones("zone-a"))
		}
		if r.IntN(4) == 0 {
			terminating := r.IntN(2) == 0
			options = append(options, modeltest.Conditions(!terminating && r.IntN(2) == 0, r.IntN(2) == 0, terminating))
		}
		s = s.Endpoint(modeltest.Pod(f, i).String(), options...)
		if r.IntN(8) == 0 { // an older pod had the address
			old := modeltest.Conditions(false, r.IntN(2) == 0, true)
			s = s.Endpoint(modeltest.Pod(f, i).String(), modeltest.OnNode(modeltest.NodeName), old)
		}
	}
	if r.IntN(6) == 0 {
		s = s.Local([]string{lab.NodeIP4, lab.NodeIP6}[f]) // in the node's own network
	}
	return s
}

// connection is most often to a frontend.
func (r randomLab) connection(p *plane) (model.Connection, *lab.Namespace) {
	f := choose(r, model.IPv4, model.IPv4, model.IPv6)
	c := model.Connection{Protocol: choose(r, model.TCP, model.UDP)}
	n, port := 41+r.IntN(3), uint16(80)
	if c.Protocol == model.UDP {
		port = 53
	}
	addrs := []string{
		fmt.Sprintf("172.30.0.%d", n), fmt.Sprintf("172.30.0.%d", n), fmt.Sprintf("192.168.98.%d", n),
		fmt.Sprintf("192.168.99.%d", n), lab.NodeIP4, "172.30.0.99",
	}
	if f == model.IPv6 {
		addrs = []string{
			fmt.Sprintf("fd00:172:30::%d", n), fmt.Sprintf("fd00:172:30::%d", n), fmt.Sprintf("fd00:192:168:98::%d", n),
			fmt.Sprintf("fd00:192:168:99::%d", n), lab.NodeIP6, "fd00:172:30::99",
		}
	}
	which := r.IntN(len(addrs) * 3)
	if which >= len(addrs) {
		which %= len(addrs) - 1 // those that nobody has, not so often
	}
	switch addr := netip.MustParseAddr(addrs[which]); {
	case which == 4:
		c.Dest = netip.AddrPortFrom(addr, uint16(30080+n-41))
	case r.IntN(16) == 0:
		c.Dest = netip.AddrPortFrom(addr, 81) // which nobody has
	default:
		c.Dest = netip.AddrPortFrom(addr, port)
	}
	switch from := r.IntN(6); {
	case from < 2:
		c.Source, c.Interface = netip.MustParseAddr([]string{lab.ClientIP4, lab.ClientIP6}[f]), lab.UplinkName
		return c, p.Client
	case from == 2:
		c.Source, c.Node = netip.MustParseAddr([]string{lab.NodeIP4, lab.NodeIP6}[f]), true
		return c, p.Node
	default:
		pod := p.Pods()[from-3]
		c.Source, c.Interface = modeltest.Pod(f, from-3), pod.Link
		return c, pod.Namespace
	}
}

// byTable counts answers that a lookup table chose, by maglev and by maglev-port.
var byTable [2]atomic.Int64

// check makes a connection as often as it takes, and compares with what was decided.
func (p *plane) check(t *testing.T, d model.Decision, from *lab.Namespace) {
	t.Helper()
	ask := func(timeout time.Duration) (lab.Answer, error) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return from.Ask(ctx, d.Protocol.String(), d.Dest)
	}
	wrong := func(format string, args ...any) {
		t.Errorf("%+v\ndecided: %v, reason %d, %d targets; %s", d.Connection, d.Verdict, d.Why, len(d.Targets), fmt.Sprintf(format, args...))
	}
	switch d.Verdict {
	case model.Rejected:
		if a, err := ask(patience); err == nil || lab.FailureOf(err) != lab.Refused {
			wrong("got answer %+v, error %v", a, err)
		}
		return
	case model.Dropped:
		if a, err := ask(silence); err == nil || lab.FailureOf(err) != lab.Timeout {
			wrong("got answer %+v, error %v", a, err)
		}
		return
	case model.NotOurs:
		if a, err := ask(silence); err == nil {
			wrong("got answer %+v", a)
		}
		return
	case model.Forwarded:
	}
	sources, missing := map[string]netip.Addr{}, map[string]bool{}
	for _, target := range d.Targets {
		name := fmt.Sprintf("%s:%d", p.owner(target.Addr.Addr()), target.Addr.Port())
		sources[name], missing[name] = d.Source, true
		if target.SNAT.Masquerade() {
			sources[name] = netip.MustParseAddr([]string{lab.NodeIP4, lab.NodeIP6}[model.FamilyOf(d.Source)])
		}
	}
	always := d.Port.Affinity > time.Second || d.Port.Algorithm == model.Maglev
	first := ""
	for try := 0; try < 4 || len(missing) > 0; try++ {
		if try == maxTries {
			wrong("%v did not answer in %d tries", missing, maxTries)
			return
		}
		a, err := ask(patience)
		source, ok := sources[a.Pod]
		if err != nil || !ok || a.Source.Addr() != source {
			wrong("got answer %+v, error %v; want one of %v", a, err, sources)
			return
		}
		if chosen := p.chosen(d, a); chosen != "" {
			if chosen != a.Pod {
				wrong("%s answered %v, but the table has %s", a.Pod, a.Source, chosen)
				return
			}
			byTable[d.Port.Algorithm-model.Maglev].Add(1)
		}
		delete(missing, a.Pod)
		if always {
			if clear(missing); first == "" {
				first = a.Pod
			}
			if a.Pod != first {
				wrong("%s answered after %s", a.Pod, first)
				return
			}
		} else if d.Port.Affinity > 0 {
			clear(missing)
		}
	}
}

// chosen returns who must have answered, or "" if a table does not say so. The pod sees the client's
// port only if nothing masquerades.
func (p *plane) chosen(d model.Decision, a lab.Answer) string {
	if d.Port.Affinity > 0 || d.Port.Slots(d.TrafficPolicy) == 0 {
		return ""
	}
	if d.Port.Algorithm == model.MaglevPort && a.Source.Addr() == d.Source && !d.Targets[0].SNAT.Masquerade() {
		d.SourcePort = a.Source.Port()
	}
	t, ok := d.Chosen()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.owner(t.Addr.Addr()), t.Addr.Port())
}

func TestPacketsDoWhatIsDecided(t *testing.T) {
	t.Parallel()
	const worlds, snapshots, connections = 5, 6, 20
	var mu sync.Mutex
	verdicts := map[model.Verdict]int{}
	t.Run("worlds", func(t *testing.T) {
		for world := range worlds {
			t.Run(fmt.Sprint(world), func(t *testing.T) {
				t.Parallel() // waiting for silence is most of the time
				r := randomLab{rand.New(rand.NewPCG(uint64(world), 11))}
				c := r.config(world)
				p := newPlane(t, podCount, c)
				p.serveEverywhere(t)
				for n := range snapshots {
					p.set(t, r.objects()...)
					if err := p.Node.FlushConntrack(); err != nil { // ports come again
						t.Fatal(err)
					}
					s := p.builder.Snapshot()
					t.Run(fmt.Sprint(n), func(t *testing.T) {
						var wait sync.WaitGroup
						defer wait.Wait()
						for range connections {
							c, from := r.connection(p)
							d := model.Decide(s, c)
							if impossible(d) {
								continue
							}
							mu.Lock()
							verdicts[d.Verdict]++
							mu.Unlock()
							if d.Verdict != model.Dropped {
								p.check(t, d, from)
								continue
							}
							wait.Go(func() { p.check(t, d, from) })
						}
					})
				}
			})
		}
	})
	t.Logf("%v; by lookup tables: %d and %d", verdicts, byTable[0].Load(), byTable[1].Load())
	if byTable[0].Load() < 10 || byTable[1].Load() < 10 {
		t.Error("too few connections show what lookup tables do")
	}
	for _, f := range []model.Verdict{model.Forwarded, model.Rejected, model.Dropped} {
		if verdicts[f] < 10 {
			t.Errorf("only %d connections were %v", verdicts[f], f)
		}
	}
}

// impossible reports whether a pod connects to itself that is said to be on another node.
func impossible(d model.Decision) bool {
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr.Addr() == d.Source && !t.Local && !d.Node })
}

// serveEverywhere answers on both ports of all pods and of the node, with its port in the
// name, and lets no ICMP error be lost.
func (p *plane) serveEverywhere(t *testing.T) {
	t.Helper()
	for _, s := range []string{"net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"} {
		if err := p.Node.Sysctl(s, "0"); err != nil {
			t.Fatal(err)
		}
	}
	places := []*lab.Namespace{p.Node}
	for _, pod := range p.Pods() {
		places = append(places, pod.Namespace)
	}
	for _, ns := range places {
		for _, port := range []uint16{8080, 8081} {
			server, err := ns.Serve(fmt.Sprintf("%s:%d", ns.Name(), port), port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
		}
	}
}

// owner returns the name of who has an address.
func (p *plane) owner(a netip.Addr) string {
	for _, pod := range p.Pods() {
		if a == pod.IP4 || a == pod.IP6 {
			return pod.Name()
		}
	}
	return p.Node.Name()
}
