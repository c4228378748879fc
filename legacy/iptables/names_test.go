package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func portName(namespace, name, port string) model.ServicePortName {
	return model.ServicePortName{
		NamespacedName: model.NamespacedName{Namespace: namespace, Name: name}, Port: port, Protocol: model.TCP,
	}
}

// The differences that a service port's connections meet are its own chains and those of no service port.
func TestChainsOfAServicePort(t *testing.T) {
	service := func(name, ip string) modeltest.Service {
		return modeltest.NewService("ns1/"+name).On(ip).TCP("http", 80)
	}
	s := modeltest.Snapshot(modeltest.Config(), service("web", "172.30.0.41"), service("other", "172.30.0.42"),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2"),
		modeltest.NewSlice("ns1/other-1", "other").TCP("http", 8080).Ready("10.0.0.2")).Family(model.IPv4)
	web, _ := s.ServicePort(modeltest.PortName("ns1/web", "http", model.TCP))
	list := strings.Join(Diff(nil, Compile(nil, s, Options{})).Chains(web), "\n")
	for chain, want := range map[string]bool{
		"VMAPD-C-" + portHash(web.Name): true, "VMAPD-C-" + portHash(portName("ns1", "other", "http")): false,
		"VMAPD-IP-029": true, "VMAPD-FILTER": true,
	} {
		if strings.Contains(list, chain+" ") != want {
			t.Errorf("%s is among the differences: %v, want %v:\n%s", chain, !want, want, list)
		}
	}
}

// FuzzNames looks for a name that adds a rule or an option: of a Service past all that model
// checks, of an interface among those that model.CheckInterface lets pass.
func FuzzNames(f *testing.F) {
	f.Add("ns1", "web", "http", "cbr0", false)
	f.Add("ns\"1", "web\\", "http\n-A VMAPD-FILTER -j ACCEPT", "cali\n", true)
	f.Add("\xff", "'", "\x00", "+", true)
	s := modeltest.Snapshot(modeltest.Config(), modeltest.NewService("ns1/web").On("172.30.0.41").TCP("", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("", 8080).Local("10.0.0.2")).Family(model.IPv4)
	web, _ := s.ServicePort(modeltest.PortName("ns1/web", "", model.TCP))
	endpoints := web.Endpoints
	f.Fuzz(func(t *testing.T, namespace, name, portOfService, iface string, wildcard bool) {
		mode := model.ByBridge
		if wildcard {
			mode = model.ByInterfacePrefix
		}
		if model.CheckInterface(iface, wildcard) != nil {
			iface = "cbr0"
		}
		config := modeltest.Config()
		config.LocalPods = model.LocalPods{Mode: mode, Interface: iface}
		vip := netip.MustParseAddr("172.30.0.41")
		sp := &model.ServicePort{
			Name: portName(namespace, name, portOfService), Affinity: 1e9,
			Frontends: []model.Frontend{
				{VIP: model.VIP{Addr: vip, Protocol: model.TCP, Port: 80}},
				{Kind: model.NodePort, VIP: model.VIP{Addr: netip.IPv4Unspecified(), Protocol: model.TCP, Port: 30000}, SourceNAT: model.MasqueradeNode, ShortCircuit: true, Action: model.Drop},
			},
			Endpoints: endpoints,
		}
		r := Compile(nil, model.NewBuilder(config).Snapshot().Family(model.IPv4), Options{})
		b := Diff(nil, r)
		rules := 0
		for _, c := range r.port(sp).chains() {
			b.set(c)
			rules += strings.Count(string(c.text), "-A "+c.name+" ")
		}
		ends := chain{table: nat, name: Prefix + "END"}
		for _, e := range r.port(sp).entries() {
			if e.tree == natAddrs || e.tree == natPorts {
				ends.add("", e.rule)
			}
		}
		b.set(ends)
		before := len(load(t, Diff(nil, r).Text()))
		// A line for each chain, and for each rule that was meant: cluster list, external, ends.
		if got, want := len(load(t, b.Text()))-before, 3+rules+2; got != want {
			t.Errorf("%d lines, want %d:\n%s", got, want, b.Text())
		}
	})
}

func load(t *testing.T, text string) []string {
	t.Helper()
	tables := iptsim.NewTables(model.IPv4)
	if err := tables.Restore(text); err != nil {
		t.Fatal(fmt.Errorf("%w:\n%s", err, text))
	}
	return slices.Collect(strings.Lines(tables.Save()))
}
