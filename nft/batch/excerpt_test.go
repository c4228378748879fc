package batch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

func excerptText(parts []compile.Part) string {
	var b strings.Builder
	for _, p := range parts {
		kind := "map"
		if p.Chain {
			kind = "chain"
		}
		fmt.Fprintf(&b, "%s %s\n", kind, p.Name)
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
	b := modeltest.Builder(modeltest.Config(),
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30080).LoadBalancer("192.168.98.11").Ranges("203.0.113.0/24"),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2", "10.0.0.3", "10.0.0.4"),
		modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80))
	r := compile.Options{}.Compile(nil, b.Snapshot().Family(model.IPv4))
	// A slot stays with its endpoint when another one leaves: the excerpt has what is in the kernel.
	modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.3", "10.0.0.4", "10.0.0.5").Set(b)
	r = compile.Options{}.Compile(r, b.Snapshot().Family(model.IPv4))
	got := excerptText(r.Excerpt(modeltest.PortName("ns1/web", "http", model.TCP), 4))
	const want = `map firewall-ips
	192.168.98.11 . tcp . 80
map source-ranges-tcp
	192.168.98.11 . 80 . 203.0.113.0/24
map service-ips
	172.30.0.41 . tcp . 80 comment "ns1/web:http" : goto endpoints-3-to-4
	192.168.98.11 . tcp . 80 comment "ns1/web:http" : goto endpoints-3-to-4
map service-nodeports
	tcp . 30080 comment "ns1/web:http" : goto nodeport-endpoints-3-to-4
chain endpoints-3-to-4
	meta l4proto tcp dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 4 map @endpoints
	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 4 map @endpoints
	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints
	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints
	drop
chain nodeport-endpoints-3-to-4
	meta l4proto tcp dnat ip to meta l4proto . th dport . numgen random mod 4 map @nodeport-endpoints
	dnat ip to meta l4proto . th dport . numgen random mod 4 map @nodeport-endpoints
	dnat ip to meta l4proto . th dport . numgen random mod 3 map @nodeport-endpoints
	dnat ip to meta l4proto . th dport . numgen random mod 1 map @nodeport-endpoints
	drop
map endpoints
	172.30.0.41 . tcp . 80 . 0 : 10.0.0.5 . 8080
	172.30.0.41 . tcp . 80 . 1 : 10.0.0.3 . 8080
	172.30.0.41 . tcp . 80 . 2 : 10.0.0.4 . 8080
	192.168.98.11 . tcp . 80 . 0 : 10.0.0.5 . 8080
	and 2 more
map nodeport-endpoints
	tcp . 30080 . 0 : 10.0.0.5 . 8080
	tcp . 30080 . 1 : 10.0.0.3 . 8080
	tcp . 30080 . 2 : 10.0.0.4 . 8080
map nodeport-source-nat
	tcp . 30080 : goto masquerade-all
map source-nat
	192.168.98.11 . tcp . 80 : goto masquerade-all
chain masquerade-all
	masquerade fully-random
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := r.Excerpt(modeltest.PortName("ns1/none", "", model.TCP), 4); got != nil {
		t.Errorf("a Service that does not exist: %v", got)
	}
}

// Each element that is about a service port is in its excerpt, and each chain to which one leads.
func TestExcerptIsComplete(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30080).External("192.168.99.11").
		Policies("Cluster", "Local").LoadBalancer("192.168.98.11").Ranges("203.0.113.0/24")
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2").Local("10.0.0.3")
	for name, service := range map[string]modeltest.Service{
		"plain": web, "affinity": web.Sticky(60), "maglev": web.Algorithm("maglev"),
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), service, slice, modeltest.OurNode()).Family(model.IPv4)
			r := counted.Compile(nil, s)
			const all = 1000
			excerpt := excerptText(r.Excerpt(modeltest.PortName("ns1/web", "http", model.TCP), all))
			for set, e := range r.Elements() {
				switch set {
				case nft.ClusterIPs, nft.NodePortIPs, nft.Hairpin: // not of a service port
					continue
				}
				if line := text(r, set, e.Element); !strings.Contains(excerpt, "\t"+line+"\n") {
					t.Errorf("%s: %s is missing:\n%s", set, line, excerpt)
				}
				if e.Verdict.Chain != "" && !strings.Contains(excerpt, "chain "+e.Verdict.Chain+"\n") {
					t.Errorf("chain %s is missing:\n%s", e.Verdict.Chain, excerpt)
				}
			}
		})
	}
}
