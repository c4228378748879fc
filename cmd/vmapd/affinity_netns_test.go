package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// remembered is a client in a listed map: the map, the client, its endpoint.
var (
	listedMap  = regexp.MustCompile(`(?s)\tmap ((?:local-)?affinity-default/\S+) \{(.*?)\n\t\}`)
	remembered = regexp.MustCompile(`([0-9a-f.:]+) timeout \w+ expires \w+ : ([0-9a-f.:]+) \. \d+`)
)

// clients returns who is remembered, in which maps, and with which endpoint.
func clients(t *testing.T, node *lab.Namespace) map[string]map[netip.Addr]netip.Addr {
	t.Helper()
	all := map[string]map[netip.Addr]netip.Addr{}
	for _, m := range listedMap.FindAllStringSubmatch(list(t, node), -1) {
		if all[m[1]] == nil {
			all[m[1]] = map[netip.Addr]netip.Addr{}
		}
		for _, e := range remembered.FindAllStringSubmatch(m[2], -1) {
			all[m[1]][netip.MustParseAddr(e[1])] = netip.MustParseAddr(e[2])
		}
	}
	return all
}

// mustRememberOnly waits until somebody is sent to these pods and nobody to others. Clients that
// packets noted by the rules of before are forgotten beside Apply.
func (p *plane) mustRememberOnly(t *testing.T, pods ...int) {
	t.Helper()
	allowed := map[netip.Addr]bool{}
	for _, n := range pods {
		for _, f := range model.Families {
			allowed[modeltest.Pod(f, n-1)] = true
		}
	}
	eventually(t, func() (problem string) {
		found := 0
		for name, m := range clients(t, p.Node) {
			for client, pod := range m {
				found++
				if !allowed[pod] {
					problem = fmt.Sprintf("%s: client %v is still sent to %v", name, client, pod)
				}
			}
		}
		if found == 0 {
			return "nobody is remembered"
		}
		return problem
	})
}

// asker makes connections that must be answered.
type asker struct {
	t    *testing.T
	from *lab.Namespace
}

func (a asker) ask(network string, source netip.Addr, to netip.AddrPort) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*patience)
	defer cancel()
	got, err := a.from.AskFrom(ctx, source, network, to)
	if err != nil {
		a.t.Fatal(err)
	}
	return got.Pod
}

// must asks some times for an answer of this pod.
func (a asker) must(network string, source netip.Addr, to netip.AddrPort, pod string) {
	a.t.Helper()
	for range 6 {
		if got := a.ask(network, source, to); got != pod {
			a.t.Fatalf("%s from %v to %v: %s answered, want %s", network, source, to, got, pod)
		}
	}
}

// As many clients as make it sure that they spread.
const manyClients = 24

func TestAClientSticksToItsPodOverAllFrontends(t *testing.T) {
	p := newPlane(t, 3, labConfig(), 8080)
	p.set(t, append(webSlices([]int{1, 2, 3}), web().Sticky(60))...)
	client := asker{t, p.Client}
	for _, f := range model.Families {
		addrs := clientAddrs(t, p.World, f, manyClients)
		for _, network := range []string{"tcp", "udp"} {
			pods := map[string]int{}
			for i, a := range addrs {
				to := frontends(f)
				pod := client.ask(network, a, to[i%len(to)])
				pods[pod]++
				for _, dest := range to {
					client.must(network, a, dest, pod)
				}
			}
			if len(pods) < 2 {
				t.Errorf("%v %s: %d clients share %v", f, network, len(addrs), pods)
			}
		}
	}
}

// A packet that is on its way while an endpoint goes may note its client once more, and of many clients
// the deletion takes a moment. These clients come back before it, from outside and from the node
// itself, and must find another pod.
func TestNoClientComesBackToAGonePod(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 2, labConfig(), 8080)
	p.backend = openKernel(t, p.Node, kernel.Options{Unowned: true}) // nft adds elements below
	p.set(t, append(webSlices([]int{1, 2}), web().Sticky(60))...)
	sources := map[*lab.Namespace][]netip.Addr{p.Node: {netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:192:168::2")}}
	for _, f := range model.Families {
		sources[p.Client] = append(sources[p.Client], clientAddrs(t, p.World, f, 3)...)
	}
	p.set(t, webSlices([]int{2})...)
	var wait sync.WaitGroup
	for from, list := range sources {
		for i, a := range list {
			f := model.FamilyOf(a)
			feed(t, p.Node, fmt.Sprintf("add element %s vmapd affinity-default/web/tcp/tcp { %s timeout 1m : %s . 8080 }\n",
				[...]string{"ip", "ip6"}[f], a, modeltest.Pod(f, 0)), "nft", "-f", "-")
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
				defer cancel()
				got, err := from.AskFrom(ctx, a, "tcp", frontends(f)[i%3])
				if err != nil {
					t.Errorf("%v: %v", a, err)
				} else if got.Pod != "pod-2" {
					t.Errorf("%v came back to %s, which is gone", a, got.Pod)
				}
			})
		}
	}
	wait.Wait()
}

func TestAPauseLongerThanTheTimeoutForgets(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	p := newPlane(t, 3, labConfig(), 8080)
	p.set(t, append(webSlices([]int{1, 2, 3}), web().Sticky(int32(timeout.Seconds())))...)
	client := asker{t, p.Client}
	source, to := netip.MustParseAddr(lab.ClientIP4), frontends(model.IPv4)[0]
	// The client is noted at some time from first to last: on a busy machine, they are not the same.
	first := time.Now()
	pod := client.ask("tcp", source, to)
	last := time.Now()
	for start := last; time.Since(start) < 2*timeout; {
		time.Sleep(timeout / 4) // the pause is what this is about
		next := time.Now()
		got := client.ask("tcp", source, to)
		if got != pod && time.Since(first) < timeout {
			t.Fatalf("%s answered %v after %s", got, time.Since(first), pod)
		}
		pod, first, last = got, next, time.Now()
	}
	for deadline := last.Add(timeout + 2*time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, there := clients(t, p.Node)["affinity-default/web/tcp/tcp"][source]
		switch {
		case there && time.Now().After(deadline):
			t.Fatalf("remembered %v after the last connection", time.Since(last))
		case !there && time.Since(first) < timeout-100*time.Millisecond:
			t.Fatalf("forgotten %v after the last connection", time.Since(first))
		case !there:
			return
		}
	}
}

func TestAClientOfAGonePodGoesToALivingOne(t *testing.T) {
	p := newPlane(t, 4, labConfig(), 8080)
	p.set(t, append(webSlices([]int{1, 2, 3}), web().Sticky(60))...)
	client := asker{t, p.Client}
	for _, f := range model.Families {
		to := frontends(f)[0]
		for _, network := range []string{"tcp", "udp"} {
			addrs := clientAddrs(t, p.World, f, 1)
			if network == "tcp" {
				addrs = clientAddrs(t, p.World, f, manyClients)
			}
			p.set(t, webSlices([]int{1, 2, 3})...)
			pods := map[netip.Addr]string{}
			for _, a := range addrs {
				pods[a] = client.ask(network, a, to)
			}
			gone := pods[addrs[0]]
			var rest []int
			for n := 1; n <= 4; n++ {
				if fmt.Sprintf("pod-%d", n) != gone {
					rest = append(rest, n)
				}
			}
			p.set(t, webSlices(rest)...)
			if err := p.backend.Purge(t.Context()); err != nil { // nobody repeats a datagram
				t.Fatal(err)
			}
			for _, a := range addrs {
				now := client.ask(network, a, to)
				if now == gone || pods[a] != gone && now != pods[a] {
					t.Fatalf("%s: %v went from %s to %s, and %s is gone", network, a, pods[a], now, gone)
				}
				client.must(network, a, to, now)
			}
		}
	}
}

// Pods 1 and 2 are on this node, pod 3 is not.
func TestTheLocalListAndTheClustersRememberForThemselves(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 3, labConfig(), 8080)
	p.set(t, append(webSlices([]int{1, 2, 3}, 3), web().Policies("Cluster", "Local").Sticky(60))...)
	client := asker{t, p.Client}
	for _, f := range model.Families {
		to := frontends(f)
		away := 0
		for i, a := range clientAddrs(t, p.World, f, 3*manyClients) {
			var cluster, local string
			if i%4 > 0 {
				cluster = client.ask("tcp", a, to[0])
				local = client.ask("tcp", a, to[1])
			} else {
				local = client.ask("tcp", a, to[1])
				cluster = client.ask("tcp", a, to[0])
				if cluster != local {
					t.Errorf("%v: %s of the local list is one of the cluster's, too, but %s answered", a, local, cluster)
				}
			}
			if local == "pod-3" || cluster != "pod-3" && cluster != local {
				t.Errorf("%v: %s by the cluster's list, %s by the local one", a, cluster, local)
			}
			if cluster == "pod-3" {
				away++
			}
			client.must("tcp", a, to[0], cluster)
			for _, external := range to[1:] {
				client.must("tcp", a, external, local)
			}
		}
		if away == 0 {
			t.Error("no client was sent to another node: nothing is tested")
		}
		// From inside, it is the cluster's list for all frontends.
		for i, inside := range p.Pods()[:2] {
			source := modeltest.Pod(f, i)
			pod := asker{t, inside.Namespace}
			name := pod.ask("tcp", source, to[1])
			for _, dest := range to {
				pod.must("tcp", source, dest, name)
			}
		}
	}
	// What was chosen where is in the maps.
	for _, name := range []string{"affinity-default/web/tcp/tcp", "local-affinity-default/web/tcp/tcp"} {
		if len(clients(t, p.Node)[name]) == 0 {
			t.Errorf("nobody is in %s", name)
		}
	}
}

// An endpoint in the node's own network is reached without postrouting.
func TestAnEndpointOnTheNodeItselfIsRemembered(t *testing.T) {
	p := newPlane(t, 1, labConfig(), 8080)
	server, err := p.Node.Serve("node", 8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	p.set(t, web().Sticky(60))
	client := asker{t, p.Client}
	for _, f := range model.Families {
		p.set(t, modeltest.NewSlice("default/web-"+f.String(), "web").Typed(f.String()).TCP("tcp", 8080).UDP("udp", 8080).
			Local(modeltest.Pod(f, 0).String(), []string{lab.NodeIP4, lab.NodeIP6}[f]))
		for _, network := range []string{"tcp", "udp"} {
			pods := map[string]int{}
			addrs := clientAddrs(t, p.World, f, 1)
			if network == "tcp" {
				addrs = clientAddrs(t, p.World, f, manyClients)
			}
			for _, a := range addrs {
				pod := client.ask(network, a, frontends(f)[0])
				pods[pod]++
				for _, dest := range frontends(f) {
					client.must(network, a, dest, pod)
				}
			}
			if network == "tcp" && pods["node"] == 0 {
				t.Errorf("the node answered nobody: %v", pods)
			}
		}
	}
}

// A client that is still remembered at a pod that is gone never reaches it: its first packet is dropped, and deletes the client.
func TestAStaleClientGoesByItsOwnPacket(t *testing.T) {
	t.Parallel()
	p := newPlane(t, 2, labConfig(), 8080)
	p.backend = openUnpurged(t, p.Node, kernel.Options{})
	for _, network := range []string{"tcp", "udp"} {
		p.set(t, append(webSlices([]int{1}), web().Sticky(3600))...)
		for _, f := range model.Families {
			asker{t, p.Client}.must(network, clientAddrs(t, p.World, f, 1)[0], frontends(f)[0], "pod-1")
		}
		p.set(t, webSlices([]int{2})...)
		for _, f := range model.Families {
			start := time.Now()
			source, to := clientAddrs(t, p.World, f, 1)[0], frontends(f)[0]
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			if got, err := p.Client.AskFrom(ctx, source, network, to); err == nil {
				t.Errorf("%s, %v: %s answered the first packet", network, f, got.Pod)
			}
			cancel()
			asker{t, p.Client}.must(network, source, to, "pod-2")
			t.Logf("%s, %v: answered after %v", network, f, time.Since(start))
		}
	}
}
