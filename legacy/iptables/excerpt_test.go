package iptables_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

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
}
