package ipvs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func excerptText(parts []ipvs.Part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s: %s\n", p.Kind, p.Name, p.Comment)
		for _, l := range p.Lines {
			fmt.Fprintf(&b, "\t%s\n", l)
		}
		if p.More > 0 {
			fmt.Fprintf(&b, "\tand %d more\n", p.More)
		}
	}
	return b.String()
}

func TestExcerptHasThePacketsWay(t *testing.T) {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").LoadBalancer("192.168.98.11").Policies("Cluster", "Local").
			Ranges("203.0.113.0/24").TCP("http", 80).NodePort(30001).Sticky(60),
		modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3", "10.0.0.4").Local("10.0.0.5")).Family(model.IPv4)
	state := ipvs.Compile(nil, s, ipvs.Options{})
	got := excerptText(state.Excerpt(modeltest.PortName("ns1/web", "http", model.TCP), 3))
	const want = `ipset VMAPD-RESTRICTED: source ranges are checked
	192.168.98.11,tcp:80
ipset VMAPD-SOURCES: clients that may connect
	192.168.98.11,tcp:80,203.0.113.0/24
ipset VMAPD-MASQUERADE-OUTSIDE: clients that are no pods are masqueraded
	172.30.0.41,tcp:80
ipset VMAPD-INSIDE: marks for connections from pods and from the node
	192.168.0.2,tcp:30001 skbmark 0x764d2aab
	192.168.98.11,tcp:80 skbmark 0x764d2aab
chain mangle VMAPD-IPVS-SERVICES: drop or mark before IPVS
	-m set --match-set VMAPD-RESTRICTED dst,dst -m set ! --match-set VMAPD-SOURCES dst,dst,src -j DROP
	-m set --match-set VMAPD-INSIDE dst,dst -j VMAPD-IPVS-INSIDE
chain mangle VMAPD-IPVS-INSIDE: give the mark of a virtual server
	-m addrtype --src-type LOCAL -j SET --map-set VMAPD-INSIDE dst,dst --map-mark
ipset VMAPD-ADDRS: addresses that the node has for Services only
	172.30.0.41
	192.168.98.11
ipset VMAPD-SERVICES: addresses and ports of virtual servers
	172.30.0.41,tcp:80
	192.168.0.2,tcp:30001
	192.168.98.11,tcp:80
chain filter VMAPD-IPVS-FILTER: connections that no virtual server gets
	-m set --match-set VMAPD-ADDRS dst -m set ! --match-set VMAPD-SERVICES dst,dst -j VMAPD-IPVS-REJECT
chain filter VMAPD-IPVS-REJECT: refuse
	-p tcp -j REJECT --reject-with tcp-reset
	-j REJECT --reject-with icmp-port-unreachable
virtual server 172.30.0.41:80/tcp: scheduler rr, a client stays for 1m0s
	10.0.0.2:8080 weight 1
	10.0.0.3:8080 weight 1
	10.0.0.4:8080 weight 1
	and 1 more
virtual server 192.168.0.2:30001/tcp: scheduler rr, a client stays for 1m0s
	10.0.0.5:8080 weight 1
virtual server 192.168.98.11:80/tcp: scheduler rr, a client stays for 1m0s
	10.0.0.5:8080 weight 1
virtual server of other addresses: 
	and 1 more
ipset VMAPD-HAIRPIN: endpoints on this node, to themselves
	10.0.0.5,10.0.0.5
chain nat VMAPD-IPVS-POSTROUTING: after IPVS has sent a packet to a real server
	-m mark --mark 0x76000000/0xff000000 -m addrtype --src-type LOCAL -j VMAPD-IPVS-MASQ
	-m mark --mark 0x4000/0x4000 -j VMAPD-IPVS-MASQ
	-m set --match-set VMAPD-ADDRS src -j VMAPD-IPVS-MASQ
	and 2 more
chain nat VMAPD-IPVS-MASQ: replace the client's address by the node's
	-m mark --mark 0x76000000/0xff000000 -j MARK --set-xmark 0x0/0xffffffff
	-j MARK --set-xmark 0x0/0x4000
	-j MASQUERADE
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	none := modeltest.PortName("ns1/none", "", model.TCP)
	if got := state.Excerpt(none, 3); got != nil {
		t.Errorf("a Service that does not exist: %v", got)
	}
	if got := state.Keys(none); got != nil {
		t.Errorf("the virtual servers of a Service that does not exist: %v", got)
	}
}

// Each rule that a connection meets, and that holds for it, is in the excerpt of its service port, with the virtual
// server that gets it.
func TestExcerptIsComplete(t *testing.T) {
	const seeds, steps, connections, all = 30, 40, 40, 1000
	compared := 0
	for seed := range uint64(seeds) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, steps)
		s := b.Snapshot()
		have := compile(nil, s, ipvs.Options{})
		for _, c := range modeltest.Sequence(r, s, connections) {
			d := model.Decide(s, c)
			if d.Port == nil || c.Dest.Addr().IsLoopback() {
				continue
			}
			f := model.FamilyOf(c.Dest.Addr())
			met := run(t, simulate(t, have[f].Content(), s.Family(f)), c)
			excerpt := have[f].Excerpt(d.Port.Name, all)
			has := func(name, line string) bool {
				return slices.ContainsFunc(excerpt, func(p ipvs.Part) bool { return p.Name == name && (line == "" || slices.Contains(p.Lines, line)) })
			}
			if zero := (ipvs.Key{}); met.Server != zero {
				compared++
				if !has(met.Server.String(), "") || !slices.Contains(have[f].Keys(d.Port.Name), met.Server) {
					t.Fatalf("seed %d, %+v: the virtual server %v is missing in the excerpt:\n%s", seed, c, met.Server, excerptText(excerpt))
				}
			}
			for _, rule := range met.Trace {
				chain, line, _ := strings.Cut(rule, ": ")
				if !strings.Contains(chain, "VMAPD-IPVS-") || strings.HasSuffix(chain, "FORWARD") || strings.HasSuffix(chain, "UNALLOCATED") {
					continue // it leads to our rules, or depends on no Service
				}
				compared++
				if !has(chain, line) {
					t.Fatalf("seed %d, %+v: %q is missing in the excerpt:\n%s", seed, c, rule, excerptText(excerpt))
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d rules and virtual servers were compared", compared)
	}
}

// Each virtual server has an owner, of whose own it is one.
func TestEachServerHasAnOwner(t *testing.T) {
	const seeds, steps = 20, 40
	seen, marks := 0, 0
	for seed := range uint64(seeds) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, steps)
		for f, state := range compile(nil, b.Snapshot(), ipvs.Options{}) {
			for k := range state.Content().Servers {
				name, ok := state.Owner(k)
				if !ok || !slices.Contains(state.Keys(name), k) {
					t.Errorf("seed %d: the owner of %v is %v (%v)", seed, k, name, ok)
				}
				seen++
				if k.Mark != 0 {
					marks++
				}
			}
			for _, k := range []ipvs.Key{{Addr: model.Families[f].Unspecified(), Mark: 1}, {Addr: model.Families[f].Unspecified(), Port: 1}} {
				if name, ok := state.Owner(k); ok {
					t.Errorf("seed %d: %v owns %v, which is not there", seed, name, k)
				}
			}
		}
	}
	if seen == 0 || marks == 0 {
		t.Errorf("%d virtual servers, %d with a mark: nothing is tested", seen, marks)
	}
}
