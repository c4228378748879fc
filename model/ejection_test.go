package model_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// ejected are endpoints and Nodes that are.
func ejected(what ...string) *model.Ejections {
	e := &model.Ejections{}
	for _, s := range what {
		if at, err := netip.ParseAddrPort(s); err == nil {
			e.Endpoints = append(e.Endpoints, model.Ejection{Endpoint: at})
		} else {
			e.Nodes = append(e.Nodes, model.Ejection{Node: s})
		}
	}
	return e
}

func TestEjections(t *testing.T) {
	web := modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80).UDP("dns", 53)
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 8080)
	two := slice.Local("10.0.0.2").Ready("10.0.0.3") // the second is on node-2
	three := two.Endpoint("10.0.0.4", modeltest.OnNode("node-3"))
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		slice   modeltest.Slice
		ejected *model.Ejections
		tcp     string // endpoints
		udp     string
	}{
		{"nothing", web, two, ejected(), "10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3"},
		{"an endpoint, of TCP", web, two, ejected("10.0.0.3:8080"), "10.0.0.2", "10.0.0.2 10.0.0.3"},
		{"one at another port", web, two, ejected("10.0.0.3:8081"), "10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3"},
		{"half of them is not too many", web, two, ejected("10.0.0.2:8080"), "10.0.0.3", "10.0.0.2 10.0.0.3"},
		{"all is too many", web, two, ejected("10.0.0.2:8080", "10.0.0.3:8080"), "10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3"},
		{
			"two of three, too", web, three, ejected("10.0.0.2:8080", "10.0.0.3:8080"), "10.0.0.2 10.0.0.3 10.0.0.4",
			"10.0.0.2 10.0.0.3 10.0.0.4",
		},
		{"a Node, of every protocol", web, three, ejected("node-2"), "10.0.0.2 10.0.0.4", "10.0.0.2 10.0.0.4"},
		{"the only one", web, slice.Ready("10.0.0.3"), ejected("10.0.0.3:8080", "node-2"), "10.0.0.3", "10.0.0.3"},
		{
			"the Service does not ask for it", web.Annotated(model.AnnotationOutlierDetection, "false"), two,
			ejected("10.0.0.3:8080", "node-2"), "10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3",
		},
		{
			"one that is not ready", web, three.Endpoint("10.0.0.5", modeltest.Conditions(false, false, false)),
			ejected("10.0.0.4:8080", "10.0.0.5:8080"), "10.0.0.2 10.0.0.3", "10.0.0.2 10.0.0.3 10.0.0.4",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := modeltest.Config()
			config.OutlierDetection = true
			b := modeltest.Builder(config, modeltest.OurNode(), tt.service, tt.slice)
			before := b.Snapshot()
			b.SetEjections(tt.ejected)
			s := b.Snapshot()
			if s == before || s.Ejections() != tt.ejected {
				t.Error("the snapshot does not have the ejections")
			}
			for protocol, want := range map[model.Protocol]string{model.TCP: tt.tcp, model.UDP: tt.udp} {
				name := map[model.Protocol]string{model.TCP: "http", model.UDP: "dns"}[protocol]
				sp, _ := s.Family(model.IPv4).ServicePort(modeltest.PortName("ns1/web", name, protocol))
				var got []string
				for e := range sp.In(model.Cluster) {
					got = append(got, e.Addr.Addr().String())
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%v has endpoints %v, want %s", protocol, got, want)
				}
				out := len(b.Selection(sp.Name, model.IPv4).Candidates) - len(got)
				if protocol == model.TCP && tt.name != "one that is not ready" && out != len(sp.Ejected) {
					t.Errorf("%d endpoints are left out, and %v are ejected", out, sp.Ejected)
				}
				for _, a := range sp.Ejected {
					if serves := sp.Serves(a); serves {
						t.Errorf("%v: %v serves", protocol, a)
					}
				}
			}
			b.SetEjections(ejected())
			text := modeltest.Text(b.Snapshot())
			if want := modeltest.Text(before); strings.Join(text, "\n") != strings.Join(want, "\n") {
				t.Errorf("when nothing is ejected, there is\n%v\nand not\n%v", text, want)
			}
		})
	}
}

func TestWhereEndpointsAre(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.3").Ready("10.0.0.2").Local("10.0.0.9"),
		modeltest.NewSlice("ns2/web-1", "web").TCP("http", 8080).Ready("10.0.0.4"),
		modeltest.NewSlice("ns3/dns-1", "dns").UDP("dns", 53).Ready("10.0.0.5"),
		modeltest.NewSlice("ns4/web-1", "web").TCP("http", 8080).Local("10.0.0.4"))
	// Another tenant's slice has the same address, and another Node.
	for _, tt := range []struct{ namespace, want string }{
		{"ns2", "node-2"},
		{"ns4", modeltest.NodeName},
		{"ns1", ""},
	} {
		service := model.NamespacedName{Namespace: tt.namespace, Name: "web"}
		if got := b.NodeOf(service, netip.MustParseAddr("10.0.0.4")); got != tt.want {
			t.Errorf("of %v, it is on %q, want %q", service, got, tt.want)
		}
	}
	want := []model.Place{
		{Namespace: "ns1", Endpoint: netip.MustParseAddrPort("10.0.0.3:8080")},
		{Namespace: "ns2", Endpoint: netip.MustParseAddrPort("10.0.0.4:8080")},
	}
	got := b.Places("node-2", netip.MustParseAddr("10.0.0.2"))
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("on node-2 are %v, want %v", got, want)
	}
}
