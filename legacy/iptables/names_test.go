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

// Names are stable: by them a new version knows the chains of an earlier one.
func TestNamesStay(t *testing.T) {
	web := portName("ns1", "web", "http")
	for _, tt := range []struct{ want, got string }{
		{"HKSZPQGNWJRFKEF2", portHash(web)},
		{"VMAPD-H3YEY5HEN62HSEYD", RecentName(web, netip.MustParseAddrPort("10.0.0.2:8080"))},
		{"VMAPD-IP-029", atAddr(natAddrs, netip.MustParseAddr("172.30.0.41")).name()},
		{"VMAPD-IP-029", atAddr(filterAddrs, netip.MustParseAddr("fd00:172:30::29")).name()},
		{"VMAPD-IP-f0a", atAddr(natAddrs, netip.MustParseAddr("172.30.255.10")).name()},
		{"VMAPD-HAIRPIN-02", atAddr(hairpins, netip.MustParseAddr("10.0.0.2")).name()},
		{"VMAPD-TCP-753", atPort(natPorts, model.TCP, 30001).name()},
		{"VMAPD-UDP-fff", atPort(natPorts, model.UDP, 65535).name()},
		{"VMAPD-SCTP-000", atPort(filterPorts, model.SCTP, 1).name()},
		{"VMAPD-SCTP-0", atPort(filterPorts, model.SCTP, 1).parent().parent().name()},
		{"VMAPD-SERVICES", place{tree: natAddrs}.name()},
	} {
		if tt.want != tt.got {
			t.Errorf("the name is %s, want %s", tt.got, tt.want)
		}
	}
}

// The longest name of a chain, that of the deepest group of roleRecall, has exactly the length
// that is allowed.
func TestNamesOfChainsAreShortEnough(t *testing.T) {
	p := &port{ServicePort: &model.ServicePort{}, hash: portHash(portName("ns1", "web", "http"))}
	c := &choice{port: p, list: model.Local}
	if got := len(c.group(roleRecall, strings.Repeat("f", maxDigits-1), 15).name); got > maxChain {
		t.Errorf("a name has %d characters, want at most %d", got, maxChain)
	}
}

func TestCommentsAreHarmless(t *testing.T) {
	for _, tt := range []struct {
		name model.ServicePortName
		want string
	}{
		{portName("ns1", "web", "http"), `"ns1/web:http"`},
		{portName("ns1", "web", ""), `"ns1/web"`},
		{portName("ns1", `we" -j ACCEPT "b`, "a\nb\\"), `"ns1/we??-j?ACCEPT??b:a?b?"`},
		{portName(strings.Repeat("n", 63), strings.Repeat("s", 253), "p"), `"` + strings.Repeat("n", 63) + "/" + strings.Repeat("s", 188) + `..."`},
	} {
		if got := strings.TrimPrefix(commentOf(tt.name), "-m comment --comment "); got != tt.want {
			t.Errorf("%v: comment %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestMatchesOfPods(t *testing.T) {
	for _, tt := range []struct {
		pods model.PodSources
		want []string
	}{
		{model.PodSources{}, nil},
		{model.PodSources{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("11.0.0.0/8")}}, []string{"-s 10.0.0.0/8", "-s 11.0.0.0/8"}},
		{model.PodSources{CIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, []string{""}},
		{model.PodSources{Interface: "cbr0"}, []string{"-i cbr0"}},
		{model.PodSources{Interface: "cali", Wildcard: true}, []string{"-i cali+"}},
		{model.PodSources{Wildcard: true}, nil},
	} {
		if got := FromPods(tt.pods); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.pods, got, tt.want)
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
		r := Compile(nil, model.NewBuilder(config).Snapshot().Family(model.IPv4), Options{Comments: true})
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
