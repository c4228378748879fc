package model_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// pointers returns the service ports of both families by their text.
func pointers(s *model.Snapshot) map[model.Family]map[model.ServicePortName]*model.ServicePort {
	all := map[model.Family]map[model.ServicePortName]*model.ServicePort{}
	for _, f := range model.Families {
		all[f] = map[model.ServicePortName]*model.ServicePort{}
		for sp := range s.Family(f).ServicePorts() {
			all[f][sp.Name] = sp
		}
	}
	return all
}

func TestWhatDoesNotChangeIsShared(t *testing.T) {
	other := modeltest.NewService("ns1/other").On("172.30.0.42", "fd00:172:30::2a").TCP("http", 80).UDP("dns", 53)
	otherSlice := modeltest.NewSlice("ns1/other-1", "other").TCP("http", 80).UDP("dns", 53).Local("10.0.0.4")
	for _, tt := range []struct {
		name    string
		change  func(b *model.Builder)
		changed []string // the service ports that may have a new pointer
	}{
		{"nothing at all", func(*model.Builder) {}, nil},
		{"the same Service again", web().Set, nil},
		{"the same slice again", webSlice().Set, nil},
		{"the same endpoints, cut into slices in another way", func(b *model.Builder) {
			modeltest.NewSlice("ns1/web-2", "web").TCP("http", 8080).Ready("10.0.0.3").Set(b)
			modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2").Set(b)
		}, nil},
		{"an endpoint more", webSlice().Ready("10.0.0.9").Set, []string{"ns1/web:http"}},
		{"an endpoint that is not ready", webSlice().Endpoint("10.0.0.9", modeltest.Conditions(false, false, false)).Set, nil},
		{"an endpoint moves to our node", modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2").Local("10.0.0.3").Set, []string{"ns1/web:http"}},
		{"a label of no concern", web().Labeled("app", "web").Set, nil},
		{"a port more leaves the first alone", web().TCP("https", 443).Set, []string{"ns1/web:https"}},
		{"an external IP", web().External("192.168.99.11").Set, []string{"ns1/web:http"}},
		{"a Service more", modeltest.NewService("ns2/new").On("172.30.0.43").TCP("", 80).Set, []string{"ns2/new"}},
		{"a Service less", other.Delete, []string{"ns1/other:http", "ns1/other:dns"}},
		{"one protocol's endpoints", modeltest.NewSlice("ns1/other-1", "other").TCP("http", 80).UDP("dns", 54).Local("10.0.0.4").Set, []string{"ns1/other:dns"}},
		{"endpoints of IPv6 alone", modeltest.NewSlice("ns1/other-6", "other").IPv6().TCP("http", 80).Ready("fd00:10::4").Set, []string{"ns1/other:http"}},
		{"the node", modeltest.NewNode("node-1", "192.168.0.9").Set, nil},
		{"a ServiceCIDR", modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16").Set, nil},
		{"a slice of nobody", modeltest.NewSlice("ns1/gone-1", "gone").TCP("", 1).Ready("10.0.0.8").Set, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := modeltest.Builder(modeltest.Config(), web(), webSlice(), other, otherSlice, modeltest.OurNode())
			before := b.Snapshot()
			text := textOf(before)
			old := pointers(before)
			tt.change(b)
			now := pointers(b.Snapshot())

			want, got := map[string]bool{}, map[string]bool{}
			for _, name := range tt.changed {
				want[name] = true
			}
			for _, f := range model.Families {
				names := maps.Clone(old[f])
				maps.Copy(names, now[f])
				for name := range names {
					if old[f][name] != now[f][name] {
						got[name.String()] = true
					}
				}
			}
			testaid.Equal(t, "service ports with another pointer", want, got)
			testaid.Equal(t, "the snapshot before, afterwards", text, textOf(before))
		})
	}

	t.Run("without a change it is the same snapshot", func(t *testing.T) {
		b := modeltest.Builder(modeltest.Config(), web(), webSlice(), modeltest.OurNode())
		s := b.Snapshot()
		for _, nothing := range []func(){
			func() {},
			func() { b.DeleteService(modeltest.Name("ns1/unknown")) },
			func() { b.DeleteEndpointSlice(modeltest.Name("ns1/unknown")) },
			func() { b.DeleteServiceCIDR("unknown") },
			func() { b.DeleteNode("node-2") },
			func() { modeltest.NewNode("node-2", "192.168.0.3").Set(b) },
			func() { modeltest.NewSlice("ns1/names", "web").Typed("FQDN").Set(b) },
			func() { b.SetHostAddresses(nil) },
		} {
			nothing()
			if b.Snapshot() != s {
				t.Fatal("nothing changed, but the snapshot is another")
			}
		}
	})

	t.Run("a snapshot is not touched by what its objects do later", func(t *testing.T) {
		service, slice := web().External("192.168.99.11"), webSlice()
		host := []netip.Addr{netip.MustParseAddr("192.168.0.2")}
		b := modeltest.Builder(modeltest.Config(), service, slice)
		b.SetHostAddresses(host)
		s := b.Snapshot()
		text := textOf(s)
		service.Ports[0].Port = 81
		service.ClusterIPs[0], service.ExternalIPs[0] = "172.30.0.99", "192.168.99.99"
		*slice.Ports[0].Port = 1
		slice.Endpoints[0].Addresses[0] = "10.0.0.99"
		host[0] = netip.MustParseAddr("192.168.0.3")
		modeltest.NewService("ns9/x").On("172.30.0.98").TCP("", 1).Set(b)
		later := b.Snapshot()
		testaid.Equal(t, "snapshot", text, textOf(s))
		checkPorts(t, later,
			"ns1/web:http/tcp [172.30.0.41:80 forward, 192.168.99.11:80 forward masquerade] 10.0.0.2:8080, 10.0.0.3:8080",
			"ns9/x/tcp [172.30.0.98:1 reject]")
	})
}

func TestSettingsAreSharedUntilTheyChange(t *testing.T) {
	b := modeltest.Builder(modeltest.Config(), modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16"))
	before := b.Snapshot()
	for _, o := range (objects{web(), modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16")}) {
		o.Set(b)
		for _, f := range model.Families {
			if b.Snapshot().Family(f).Settings != before.Family(f).Settings {
				t.Errorf("%v: %v settings were made anew, though nothing changed about them", o.Ref(), f)
			}
		}
	}
	modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/15").Set(b)
	if b.Snapshot().Family(model.IPv4).Settings == before.Family(model.IPv4).Settings {
		t.Error("the settings are the same, though a ServiceCIDR changed")
	}
}
