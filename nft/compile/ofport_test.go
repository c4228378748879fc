package compile_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
)

// Each element that is about a service port is in its part of the table, each chain to which one leads, and nothing of
// another Service.
func TestTheTableOfAPortIsComplete(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).NodePort(30080).External("192.168.99.11").
		Policies("Cluster", "Local").LoadBalancer("192.168.98.11").Ranges("203.0.113.0/24")
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2").Local("10.0.0.3")
	other := modeltest.NewService("ns1/other").On("172.30.0.42").TCP("http", 80)
	for name, service := range map[string]modeltest.Service{
		"plain": web, "affinity": web.Sticky(60), "maglev": web.Algorithm("maglev"),
	} {
		t.Run(name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), service, slice, other, modeltest.OurNode()).Family(model.IPv4)
			r := compile.Options{Counters: true}.Compile(nil, s)
			text := r.OfPort(modeltest.PortName("ns1/web", "http", model.TCP)).String()
			check := func(set string, e nft.Element) {
				isOthers := strings.Contains(e.Key, string(nft.AppendAddr(nil, netip.MustParseAddr("172.30.0.42"))))
				switch set {
				case nft.ClusterIPs, nft.NodePortIPs, nft.Hairpin: // not of a service port
					return
				}
				declared := nft.DeclarationOf(set)
				line := "\t\t\t" + declared.Text(model.IPv4, e) + ",\n"
				if strings.Contains(text, line) == isOthers {
					t.Errorf("%s: is %s missing, or another Service's?\n%s", set, line, text)
				}
				if e.Verdict.Chain != "" && !isOthers && !strings.Contains(text, "chain "+e.Verdict.Chain+" {\n") {
					t.Errorf("chain %s is missing:\n%s", e.Verdict.Chain, text)
				}
			}
			for unit := range r.Units() {
				unit.Elements(check)
			}
			if !strings.Contains(text, "chain endpoints-") {
				t.Errorf("no chain chooses one of all endpoints, as for pods:\n%s", text)
			}
		})
	}
}
