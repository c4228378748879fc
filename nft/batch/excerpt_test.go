package batch_test

import (
	"fmt"
	"strings"
	"testing"

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
