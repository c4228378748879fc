package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// retryPatience is for several attempts of a connection, of which the later ones are seconds apart.
const retryPatience = 30 * time.Second

// retried is a Service of the tests of connection retry. All pods of the world are its endpoints, at a port of its own.
type retried struct {
	modeltest.Service
	target uint16
}

func retriedServices() map[string]retried {
	all := map[string]retried{}
	for i, s := range []modeltest.Service{
		modeltest.NewService("default/plain").TCP("", 80),
		modeltest.NewService("default/annotated").TCP("", 80).Annotated("vmapd.io/connection-retry", "false"),
		modeltest.NewService("default/sticky").TCP("", 80).Sticky(10_800),
		modeltest.NewService("default/dns").UDP("", 53),
		modeltest.NewService("default/udp").UDP("", 80),
	} {
		s = s.On(fmt.Sprintf("172.30.0.%d", 41+i), fmt.Sprintf("fd00:172:30::%d", 41+i))
		all[s.Name] = retried{s, uint16(8041 + i)}
	}
	return all
}

func (s retried) vip(f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(s.ClusterIPs[f]), uint16(s.Ports[0].Port))
}

// startRetrying makes a world with so many pods, whose node is programmed with the Services.
func startRetrying(t *testing.T, pods int, retry bool) *lab.World {
	t.Helper()
	vmapdtest.NeedNFT(t)
	var ports []uint16
	var objects []modeltest.Object
	for name, s := range retriedServices() {
		ports, objects = append(ports, s.target), append(objects, s.Service)
		for _, f := range model.Families {
			slice := modeltest.NewSlice("default/"+name+"-"+f.String(), name).Typed(f.String())
			if s.Ports[0].Protocol == "UDP" {
				slice = slice.UDP("", int32(s.target))
			} else {
				slice = slice.TCP("", int32(s.target))
			}
			for i := range pods {
				slice = slice.Endpoint(modeltest.Pod(f, i).String(), modeltest.OnNode(modeltest.NodeName))
			}
			objects = append(objects, slice)
		}
	}
	config := modeltest.Config() // nobody is masqueraded: pods see the clients
	config.ConnectionRetry = retry
	p := vmapdtest.NewPlane(t, pods, config, ports...)
	p.Set(t, objects...)
	return p.World
}

// inPods gives sets, and nft rules of one hook, to pods.
func inPods(t *testing.T, pods []*lab.Pod, hook, sets, rules string) {
	t.Helper()
	table := "table inet pod {\n" + sets + "\nchain rules {\ntype filter hook " + hook + " priority -400\n" +
		rules + "\n}\n}"
	for _, p := range pods {
		vmapdtest.Feed(t, p.Namespace, table, "nft", "-f", "-")
	}
}

// connection is one that a client makes.
type connection struct {
	from netip.Addr
	pod  string // that answered
	err  error
}

// connectAll connects from each address at the same time.
func connectAll(t *testing.T, w *lab.World, s retried, sources []netip.Addr, within time.Duration) []connection {
	t.Helper()
	all := make([]connection, len(sources))
	var wait sync.WaitGroup
	for i, from := range sources {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			a, err := w.Client.AskFrom(ctx, from, "tcp", s.vip(model.FamilyOf(from)))
			all[i] = connection{from, a.Pod, err}
		})
	}
	wait.Wait()
	return all
}

// bothFamilies returns so many addresses of the client of each family.
func bothFamilies(t *testing.T, w *lab.World, n int) []netip.Addr {
	t.Helper()
	return append(clientAddrs(t, w, model.IPv4, n), clientAddrs(t, w, model.IPv6, n)...)
}

// One of eight endpoints is silent: no connection fails.
func TestAConnectionGetsAnotherEndpointThanASilentOne(t *testing.T) {
	t.Parallel()
	w := startRetrying(t, 8, true)
	inPods(t, w.Pods()[:1], "prerouting", "", "drop")
	plain := retriedServices()["plain"]
	const connections = 40
	for _, f := range model.Families {
		for _, c := range connectAll(t, w, plain, slices.Repeat(clientAddrs(t, w, f, 1), connections), retryPatience) {
			if c.err != nil {
				t.Error(c.err)
			}
		}
	}
}

// The endpoint of some clients falls silent: they connect nevertheless, and stay with another one. All others keep
// theirs.
func TestClientsLeaveASilentEndpoint(t *testing.T) {
	t.Parallel()
	w := startRetrying(t, 8, true)
	sticky, sources := retriedServices()["sticky"], bothFamilies(t, w, 40)
	before := connectAll(t, w, sticky, sources, vmapdtest.Patience)
	inPods(t, w.Pods()[:1], "prerouting", "", "drop")
	after := connectAll(t, w, sticky, sources, retryPatience)
	again := connectAll(t, w, sticky, sources, vmapdtest.Patience)
	left := 0
	for i, b := range before {
		a := after[i]
		switch {
		case b.err != nil || a.err != nil || again[i].err != nil:
			t.Errorf("%v connects: %v; %v; %v", b.from, b.err, a.err, again[i].err)
		case b.pod == "pod-1":
			left++
		case a.pod != b.pod:
			t.Errorf("%v had %s, which answers, and has %s now", b.from, b.pod, a.pod)
		}
		if again[i].pod != a.pod {
			t.Errorf("%v does not stay with %s: %s answers", b.from, a.pod, again[i].pod)
		}
	}
	if left == 0 {
		t.Error("no client had the silent endpoint")
	}
}

// One lost packet costs no client its endpoint, and no connection: neither the first packet of a connection, nor the
// answer to it, which the endpoint repeats when the client repeats its own.
func TestOneLostPacketKeepsAClientsEndpoint(t *testing.T) {
	t.Parallel()
	const later = " limit rate over 1/hour burst 1 packets } accept\n"
	for hook, end := range map[string]string{"prerouting": "s", "output": "d"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			w := startRetrying(t, 3, true)
			sticky, sources := retriedServices()["sticky"], bothFamilies(t, w, 24)
			before := connectAll(t, w, sticky, sources, vmapdtest.Patience)
			inPods(t, w.Pods(), hook, clientSets, "meta l4proto != tcp accept\n"+
				"meta nfproto ipv4 update @clients4 { ip "+end+"addr . tcp "+end+"port"+later+
				"meta nfproto ipv6 update @clients6 { ip6 "+end+"addr . tcp "+end+"port"+later+"drop")
			for i, c := range connectAll(t, w, sticky, sources, retryPatience) {
				if b := before[i]; c.err != nil || b.err != nil || c.pod != b.pod {
					t.Errorf("%v had %s, and has %q now: %v; %v", b.from, b.pod, c.pod, b.err, c.err)
				}
			}
		})
	}
}

// clientSets are sets of an endpoint's clients.
const clientSets = `set clients4 { type ipv4_addr . inet_service; flags dynamic; size 65535; }
	set clients6 { type ipv6_addr . inet_service; flags dynamic; size 65535; }`

// silentPods is a world whose pods do not answer, and note who has tried them at a port.
type silentPods struct{ *lab.World }

func startSilentPods(t *testing.T, retry bool) silentPods {
	t.Helper()
	w := silentPods{startRetrying(t, 3, retry)}
	const sets = `set tried4 { type ipv4_addr . inet_service . inet_service; flags dynamic; size 65535; }
	set tried6 { type ipv6_addr . inet_service . inet_service; flags dynamic; size 65535; }`
	inPods(t, w.Pods(), "prerouting", sets, `meta l4proto != { tcp, udp } accept
	meta nfproto ipv4 update @tried4 { ip saddr . th sport . th dport }
	meta nfproto ipv6 update @tried6 { ip6 saddr . th sport . th dport }
	drop`)
	return w
}

// mustTry checks whether some of so many clients of a Service have tried more than one endpoint.
func (w silentPods) mustTry(t *testing.T, service string, clients int, moves bool) {
	t.Helper()
	triedBy := regexp.MustCompile(fmt.Sprintf(`([0-9a-f.:]+ \. \d+) \. %d\b`, retriedServices()[service].target))
	tried, moved := map[string]int{}, 0
	for _, p := range w.Pods() {
		listed := vmapdtest.Feed(t, p.Namespace, "", "nft", "-n", "list", "table", "inet", "pod")
		for _, m := range triedBy.FindAllStringSubmatch(listed, -1) {
			if tried[m[1]]++; tried[m[1]] == 2 {
				moved++
			}
		}
	}
	if len(tried) != clients || moves != (moved > 0) {
		t.Errorf("%s: %d of %d clients have tried more than one endpoint; want %v; there are %d clients",
			service, moved, len(tried), map[bool]string{true: "some", false: "none"}[moves], clients)
	}
}

// A connection tries one endpoint after the other, unless its Service has the annotation. glibc asks a server of DNS
// again after five seconds, from the same socket: another endpoint gets that query. Over other ports, a flow of UDP
// keeps its endpoint.
func TestWhichConnectionsAreRetried(t *testing.T) {
	t.Parallel()
	w := startSilentPods(t, true)
	sources := bothFamilies(t, w.World, 20)
	var wait sync.WaitGroup
	for _, name := range []string{"plain", "annotated"} {
		wait.Go(func() { connectAll(t, w.World, retriedServices()[name], sources, firstAttempts) })
	}
	for _, name := range []string{"dns", "udp"} {
		for _, from := range sources {
			to := retriedServices()[name].vip(model.FamilyOf(from))
			c, err := w.Client.DialFrom(t.Context(), netip.AddrPortFrom(from, 0), "udp", to)
			if err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				defer c.Close()
				for _, within := range []time.Duration{5 * time.Second, vmapdtest.Silence} {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					_, _ = c.Ask(ctx) // nobody answers
					cancel()
				}
			})
		}
	}
	wait.Wait()
	for name, moves := range map[string]bool{"plain": true, "annotated": false, "dns": true, "udp": false} {
		w.mustTry(t, name, len(sources), moves)
	}
}

// firstAttempts is the time of a connection's first packet, and of one or three more.
const firstAttempts = 3500 * time.Millisecond

// The setting turns it off for all Services.
func TestTheSettingTurnsRetryOff(t *testing.T) {
	t.Parallel()
	w := startSilentPods(t, false)
	sources := bothFamilies(t, w.World, 20)
	connectAll(t, w.World, retriedServices()["plain"], sources, firstAttempts)
	w.mustTry(t, "plain", len(sources), false)
}
