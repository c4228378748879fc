package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
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
	for _, m := range listedMap.FindAllStringSubmatch(vmapdtest.ListRuleset(t, node), -1) {
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
func mustRememberOnly(t *testing.T, p *vmapdtest.Plane, pods ...int) {
	t.Helper()
	allowed := map[netip.Addr]bool{}
	for _, n := range pods {
		for _, f := range model.Families {
			allowed[modeltest.Pod(f, n-1)] = true
		}
	}
	vmapdtest.Eventually(t, func() (problem string) {
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

// mustAnswer asks some times for an answer of this pod.
func mustAnswer(t *testing.T, from *lab.Namespace, network string, source netip.Addr, to netip.AddrPort, pod string) {
	t.Helper()
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*vmapdtest.Patience)
		got, err := from.AskFrom(ctx, source, network, to)
		cancel()
		if err != nil || got.Pod != pod {
			t.Fatalf("%s from %v to %v: answered by %q, %v; want %s", network, source, to, got.Pod, err, pod)
		}
	}
}

// A client that is still remembered at a pod that is gone never reaches it: its first packet is dropped, and deletes
// the client.
func TestAStaleClientGoesByItsOwnPacket(t *testing.T) {
	t.Parallel()
	p := vmapdtest.NewPlane(t, 2, vmapdtest.LabConfig(), 8080)
	p.Backend = vmapdtest.OpenKernel(t, p.Node, kernel.Options{Unowned: true})
	for _, network := range []string{"tcp", "udp"} {
		p.Set(t, append(vmapdtest.WebSlices([]int{1}), vmapdtest.Web().Sticky(3600))...)
		for _, f := range model.Families {
			mustAnswer(t, p.Client, network, clientAddrs(t, p.World, f, 1)[0], vmapdtest.Frontends(f)[0], "pod-1")
		}
		p.Set(t, vmapdtest.WebSlices([]int{2})...)
		// A client that reuses a source port would meet its flow of before.
		if err := p.Node.FlushConntrack(); err != nil {
			t.Fatal(err)
		}
		for _, f := range model.Families {
			start := time.Now()
			source, to := clientAddrs(t, p.World, f, 1)[0], vmapdtest.Frontends(f)[0]
			rememberGone(t, p.Node, f, network, source)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			if got, err := p.Client.AskFrom(ctx, source, network, to); err == nil {
				t.Errorf("%s, %v: %s answered the first packet", network, f, got.Pod)
			}
			cancel()
			mustAnswer(t, p.Client, network, source, to, "pod-2")
			t.Logf("%s, %v: answered after %v", network, f, time.Since(start))
		}
	}
}

// rememberGone makes the kernel remember a client at pod 1, which is gone.
func rememberGone(t *testing.T, node *lab.Namespace, f model.Family, network string, client netip.Addr) {
	t.Helper()
	const element = "add element %s vmapd affinity-default/web/%s/%[2]s { %v timeout 1h : %v . 8080 }"
	table := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
	command := fmt.Sprintf(element, table, network, client, modeltest.Pod(f, 0))
	if out, err := node.Command(t.Context(), "nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}
