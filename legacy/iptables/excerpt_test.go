package iptables_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func excerptText(parts []iptables.Part) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s\n", p.Table, p.Name)
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
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80),
		modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3", "10.0.0.4").Local("10.0.0.5")).Family(model.IPv4)
	r := iptables.Compile(nil, s, iptables.Options{Comments: true})
	got := excerptText(r.Excerpt(modeltest.PortName("ns1/web", "http", model.TCP), 3))
	const want = `nat VMAPD-SERVICES
	-d 0.0.0.9/0.0.0.15 -g VMAPD-IP-9
nat VMAPD-IP-9
	-d 0.0.0.32/0.0.0.240 -g VMAPD-IP-29
nat VMAPD-IP-29
	-d 0.0.0.0/0.0.15.0 -g VMAPD-IP-029
nat VMAPD-IP-029
	-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/web:http" -g VMAPD-C-HKSZPQGNWJRFKEF2
nat VMAPD-C-HKSZPQGNWJRFKEF2
	-d 172.30.0.41/32 -p tcp -m tcp --dport 80 -m comment --comment "ns1/web:http" -j VMAPD-MARK-OUTSIDE
	-p tcp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination 10.0.0.2:8080
	-p tcp -m statistic --mode random --probability 0.33333333349 -j DNAT --to-destination 10.0.0.3:8080
	and 2 more
filter VMAPD-FILTER
	-m conntrack --ctstate DNAT -j RETURN
	-j VMAPD-SERVICES
nat VMAPD-POSTROUTING
	-m mark --mark 0x4000/0x4000 -g VMAPD-MASQUERADE
	-m conntrack --ctstate DNAT -g VMAPD-HAIRPIN
nat VMAPD-MASQUERADE
	-j MARK --set-xmark 0x4000/0x0
	-j MASQUERADE
nat VMAPD-HAIRPIN
	-s 0.0.0.5/0.0.0.15 -g VMAPD-HAIRPIN-5
nat VMAPD-HAIRPIN-5
	-s 0.0.0.0/0.0.0.240 -g VMAPD-HAIRPIN-05
nat VMAPD-HAIRPIN-05
	-s 10.0.0.5/32 -d 10.0.0.5/32 -j MASQUERADE
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := r.Excerpt(modeltest.PortName("ns1/none", "", model.TCP), 3); got != nil {
		t.Errorf("a Service that does not exist: %v", got)
	}
}

// Each rule that a connection meets, and that holds for it, is in the excerpt of its service port.
func TestExcerptIsComplete(t *testing.T) {
	const seeds, steps, connections, all = 30, 40, 40, 1000
	compared := 0
	for seed := range uint64(seeds) {
		r := modeltest.NewRandom(modeltest.Seed(seed))
		b := model.NewBuilder(configs[seed%uint64(len(configs))])
		r.Steps(b, steps)
		s := b.Snapshot()
		rules := compileAll(rulesets{}, s, options[seed%uint64(len(options))])
		for _, c := range modeltest.Sequence(r, s, connections) {
			d := model.Decide(s, c)
			if d.Port == nil || c.Dest.Addr().IsLoopback() {
				continue
			}
			f := model.FamilyOf(c.Dest.Addr())
			met, err := simulate(t, load(t, rules[f]), s.Family(f)).Run(c)
			if err != nil {
				t.Fatal(err)
			}
			excerpt := map[string]bool{}
			for _, p := range rules[f].Excerpt(d.Port.Name, all) {
				for _, l := range p.Lines {
					excerpt[p.Table+" "+p.Name+": "+l] = true
				}
			}
			for _, rule := range met.Trace {
				_, chain, _ := strings.Cut(rule, " ")
				chain, ours := strings.CutPrefix(chain, iptables.Prefix)
				if !ours || strings.HasPrefix(chain, "FORWARD") || strings.HasPrefix(chain, "HAIRPIN") {
					continue // it leads to our rules, depends on no Service, or on the client alone
				}
				compared++
				if !excerpt[rule] {
					t.Fatalf("seed %d, %+v: %q is missing in the excerpt:\n%s", seed, c, rule, excerptText(rules[f].Excerpt(d.Port.Name, all)))
				}
			}
		}
	}
	if compared < 1000 {
		t.Errorf("only %d rules were compared", compared)
	}
}

// Thousands of endpoints stand in groups of chains; the excerpt of such a service port is small, too.
func TestExcerptOfManyEndpointsIsSmall(t *testing.T) {
	var pods []string
	for i := range 3000 {
		pods = append(pods, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String())
	}
	s := modeltest.Snapshot(modeltest.Config(), modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).Sticky(60),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready(pods...)).Family(model.IPv4)
	parts := iptables.Compile(nil, s, iptables.Options{}).Excerpt(modeltest.PortName("ns1/web", "http", model.TCP), 12)
	const most = 20
	if len(parts) > most {
		t.Errorf("%d chains, want %d at most:\n%s", len(parts), most, excerptText(parts))
	}
	for _, p := range parts {
		if p.Comment == "" && !strings.HasPrefix(p.Name, iptables.Prefix+"IP-") {
			t.Errorf("chain %s has no purpose", p.Name)
		}
	}
}
