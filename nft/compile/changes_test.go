package compile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// What a change brings beside elements of endpoints: maps of clients to purge, and what depends on the node.
func TestChanges(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.0.9").TCP("http", 80)
	sticky, none := web.Sticky(60), modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	two := none.Ready("10.0.0.2", "10.0.0.3")
	for _, tt := range []struct {
		name   string
		before []modeltest.Object
		change func(*model.Builder)
		purged []string
		added  []string // but endpoints
	}{
		{"a sticky endpoint leaves", []modeltest.Object{sticky, two}, func(b *model.Builder) {
			none.Ready("10.0.0.3").Set(b)
		}, []string{"affinity-ns1/web/tcp/http"}, nil},
		{"a sticky endpoint joins", []modeltest.Object{sticky, two}, func(b *model.Builder) {
			none.Ready("10.0.0.2", "10.0.0.3", "10.0.0.4").Set(b)
		}, nil, []string{
			`service-ips 172.30.0.41 . tcp . 80 comment "ns1/web:http" : goto endpoints-3-to-4`,
			`service-ips 192.168.0.9 . tcp . 80 comment "ns1/web:http" : goto endpoints-3-to-4`,
		}},
		{"another timeout", []modeltest.Object{sticky, two}, func(b *model.Builder) {
			web.Sticky(90).Set(b)
		}, []string{"affinity-ns1/web/tcp/http"}, nil},
		{"an endpoint leaves", []modeltest.Object{web, two}, func(b *model.Builder) { none.Ready("10.0.0.3").Set(b) }, nil, nil},
		{"the node gets an external IP of a Service", []modeltest.Object{web, two}, func(b *model.Builder) {
			modeltest.NewNode("node-1", "192.168.0.9").Set(b)
		}, nil, []string{"nodeport-ips 192.168.0.9", "remember-ips 192.168.0.9 . tcp . 80 : return"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), append(tt.before, modeltest.OurNode())...)
			have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
			tt.change(b)
			now := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
			var purged, added []string
			for c := range now.Changes(have) {
				for _, p := range c.New.Clients {
					purged = append(purged, p.Map())
				}
				was := map[string]bool{}
				c.Old.Elements(func(set string, e nft.Element) { was[set+" "+text(model.IPv4, set, e)] = true })
				c.New.Elements(func(set string, e nft.Element) {
					if one := set + " " + text(model.IPv4, set, e); !was[one] && !strings.Contains(set, "endpoints") {
						added = append(added, one)
					}
				})
			}
			slices.Sort(added)
			testaid.Equal(t, "purged", tt.purged, purged)
			testaid.Equal(t, "added", tt.added, added)
		})
	}
}

// Where an endpoint replaces another, its slot alone is written, for each frontend.
func TestAReplacedEndpointIsOneSlot(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.0.9").TCP("http", 80)
	none := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080)
	b := modeltest.Builder(modeltest.Config(), web, none.Ready("10.0.0.2", "10.0.0.3"), modeltest.OurNode())
	have := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	none.Ready("10.0.0.2", "10.0.0.4").Set(b)
	now := compile.Options{}.Compile(have, b.Snapshot().Family(model.IPv4))
	var written []string
	for c := range now.Changes(have) {
		c.New.Elements(func(set string, e nft.Element) {
			if set == "endpoints" {
				written = append(written, text(model.IPv4, set, e))
			}
		})
	}
	testaid.Equal(t, "written", []string{
		"172.30.0.41 . tcp . 80 . 1 : 10.0.0.4 . 8080", "192.168.0.9 . tcp . 80 . 1 : 10.0.0.4 . 8080",
	}, written)
}

// Chains that packets of established connections meet, too, go with the last Service that needs them.
func TestChainsOfEstablishedPacketsGo(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode())
	o := compile.Options{Timeouts: nft.RetryTimeouts(nil)}
	r := o.Compile(nil, b.Snapshot().Family(model.IPv4))
	hooks := func() (names []string) {
		r = o.Compile(r, b.Snapshot().Family(model.IPv4))
		for _, c := range r.Chains {
			if c.Filter {
				names = append(names, c.Name)
			}
		}
		return names
	}
	plain := modeltest.NewService("ns1/plain").On("172.30.0.41").TCP("http", 80)
	sticky := modeltest.NewService("ns1/sticky").On("172.30.0.42").TCP("http", 80).Sticky(60)
	testaid.Equal(t, "with no Service", nil, hooks())
	plain.Set(b)
	testaid.Equal(t, "with a plain Service", []string{"forward"}, hooks())
	sticky.Set(b)
	all := []string{"answer-input", "answer-postrouting", "forward", "remember-output", "remember-prerouting"}
	testaid.Equal(t, "with a sticky one", all, hooks())
	sticky.Delete(b)
	testaid.Equal(t, "without it", []string{"forward"}, hooks())
	plain.Delete(b)
	testaid.Equal(t, "without a Service", nil, hooks())
}

// A packet to an endpoint that is gone deletes its client and is dropped, unless the service port has the endpoint: it
// may be back, or gone from another one.
func TestTheRuleThatForgetsAClient(t *testing.T) {
	service := modeltest.NewService("ns1/web").On("172.30.0.41").External("192.168.99.11").Policies("Cluster", "Local").
		Sticky(60).TCP("http", 80)
	s := modeltest.Snapshot(modeltest.Config(), service, modeltest.OurNode()).Family(model.IPv4)
	for _, chain := range (compile.Options{}).Compile(nil, s).Table().Chains {
		if chain.Name != "remember-ns1/web/tcp/http" {
			continue
		}
		last := chain.Rules[len(chain.Rules)-1].Text(model.IPv4)
		testaid.Equal(t, "the rule", "meta l4proto tcp ip daddr . th dport @gone-endpoints "+
			"numgen random mod 1 offset 1701734803 . numgen random mod 1 offset 3322671087 . ip daddr . th dport != @affinity-endpoints "+
			"numgen random mod 1 offset 561058914 . numgen random mod 1 offset 1220847375 . ip daddr . th dport != @affinity-endpoints "+
			"delete @affinity-ns1/web/tcp/http { ip saddr : ip daddr . th dport } "+
			"delete @local-affinity-ns1/web/tcp/http { ip saddr : ip daddr . th dport } drop", last)
		return
	}
	t.Error("no chain remembers clients")
}
