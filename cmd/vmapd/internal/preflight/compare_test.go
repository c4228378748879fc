package preflight

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
)

const (
	latestIPTables = "1.36.3-iptables"
	latestNFTables = "1.36.3-nftables"
)

// changed is the cluster without differences, in both modes, after a change of it.
func changed(t *testing.T, change func(*Input)) map[string]*Report {
	t.Helper()
	reports := map[string]*Report{}
	for _, version := range []string{latestIPTables, latestNFTables} {
		in := load(t, version, "same")
		change(&in)
		r, err := Compare(in)
		if err != nil {
			t.Fatal(err)
		}
		reports[version] = r
	}
	return reports
}

func service(t *testing.T, in *Input, name string) *model.Service {
	t.Helper()
	i := slices.IndexFunc(in.Objects.Services, func(s model.Service) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no Service %s", name)
	}
	return &in.Objects.Services[i]
}

func TestWhatKubeProxyHasNotFollowedIsStale(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*testing.T, *Input)
		want   string
	}{
		{"a Service is gone", func(t *testing.T, in *Input) {
			gone := service(t, in, "host").NamespacedName
			in.Objects.Services = slices.DeleteFunc(in.Objects.Services, func(s model.Service) bool { return s.NamespacedName == gone })
		}, "shop/host: kube-proxy still has rules for 172.30.0.50:80/tcp, which no Service has"},
		{"a node port is gone", func(t *testing.T, in *Input) {
			service(t, in, "host").Ports[0].NodePort = 0
		}, "shop/host: kube-proxy still has rules for 30082/tcp, which no Service has"},
		{"a Service is new", func(t *testing.T, in *Input) {
			s := *service(t, in, "web")
			s.Name, s.ClusterIPs, s.ExternalIPs, s.Ports = "new", []string{"172.30.0.99"}, nil, []model.Port{{Port: 80}}
			in.Objects.Services = append(in.Objects.Services, s)
		}, "shop/new: kube-proxy has no rules for 172.30.0.99:80/tcp yet"},
		{"an endpoint is gone", func(_ *testing.T, in *Input) {
			for i := range in.Objects.EndpointSlices {
				if s := &in.Objects.EndpointSlices[i]; s.Name == "web-4" {
					s.Endpoints = s.Endpoints[:1]
				}
			}
		}, "shop/web: kube-proxy still forwards to 10.0.1.2:8080, which is no endpoint any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for version, r := range changed(t, func(in *Input) { c.change(t, in) }) {
				if !slices.Contains(stale(r.Stale), c.want) {
					t.Errorf("%s: want stale %q; got %q", version, c.want, stale(r.Stale))
				}
				if r.Differs() {
					t.Errorf("%s: want no difference; got %+v", version, r.Differences)
				}
			}
		})
	}
}

func TestSettingsThatDifferAreFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		id     string
		text   string
	}{
		{"another range of pods", func(in *Input) {
			in.Config.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16"), netip.MustParsePrefix("fd00:99::/32")}
		}, "source", "endpoints see the address of the node, and no longer the client's"},
		{"masqueradeAll", func(in *Input) { in.Config.MasqueradeAll = true }, "source", "no longer the client's"},
		{"no range of pods", func(in *Input) { in.Config.LocalPods = model.LocalPods{} }, "source", "endpoints see the client's address"},
		{"node ports everywhere", func(in *Input) {
			in.Config.NodePortAddresses = model.NodePortAddresses{All: true}
		}, "served", "node ports also answer on addresses where kube-proxy's do not"},
		{"node ports nowhere", func(in *Input) {
			in.Config.NodePortAddresses = model.NodePortAddresses{}
		}, "node-port-address", "node ports answer on no address only"},
		{"no external IPs", func(in *Input) {
			in.Config.ExternalAddresses.NoExternalIPs = true
		}, "not-served", "connections to the external IP are passed on untouched: Service shop/web"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for version, r := range changed(t, c.change) {
				found := slices.ContainsFunc(r.Differences, func(d Difference) bool {
					return d.ID == c.id && strings.Contains(d.What, c.text) && slices.Contains(d.Services, "shop/web")
				})
				if !found {
					t.Errorf("%s: want a difference %s of shop/web with %q; got %+v", version, c.id, c.text, r.Differences)
				}
			}
		})
	}
}

func TestWithTheSameModeThereAreFewerDifferences(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "config.conf")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\nclusterCIDR: 10.0.0.0/16,fd00:10::/32\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := compare(t, load(t, latestIPTables, "differs", "--config="+conf))
	want := map[string]string{"external-in-service-cidr": "shop/guest shop/inside", "input-policy": "shop/away shop/edge", "invalid-packets": ""}
	if diff := cmp.Diff(want, services(r.Differences)); diff != "" || r.Backend != "iptables" {
		t.Errorf("backend %s, differences (-want +got):\n%s", r.Backend, diff)
	}
}

// A cluster IP belongs to its Service, though another one has it as external IP.
func TestAClusterIPBelongsToItsService(t *testing.T) {
	in := load(t, latestIPTables, "differs")
	text, err := os.ReadFile(filepath.Join(recordings, latestIPTables, "differs.ipv4.rules"))
	if err != nil {
		t.Fatal(err)
	}
	// The Service shop/guest has the port of shop/web, and its rule comes first.
	rules := strings.Replace(string(text), `-A KUBE-SERVICES -d 172.30.0.10/32 -p tcp -m comment --comment "shop/web:http cluster IP"`, `-A KUBE-SERVICES -d 172.30.9.9/32 -p tcp -m comment --comment "shop/web:http cluster IP"`, 1)
	rules = strings.Replace(rules, `--comment "shop/guest external IP" -m tcp --dport 8080`, `--comment "shop/guest external IP" -m tcp --dport 80`, 1)
	if in.Before[model.IPv4], err = ReadIPTables(model.IPv4, rules); err != nil {
		t.Fatal(err)
	}
	in.Config.ExternalAddresses.InServiceCIDRs = true
	in.Objects.ServiceCIDRs = nil
	service(t, &in, "guest").Ports[0].Port = 80
	r, err := Compare(in)
	if err != nil {
		t.Fatal(err)
	}
	if got := services(r.Differences)["endpoints"]; !strings.Contains(got, "shop/guest") {
		t.Errorf("want other endpoints for shop/guest; got %+v", r.Differences)
	}
}

func TestWhatFollowsFromModeIPVSIsListed(t *testing.T) {
	in := load(t, latestIPTables, "differs")
	in.Before, in.Mode = [len(model.Families)]*Rules{}, "ipvs"
	for backend, want := range map[string]map[string]string{
		"nftables": {"ipvs": "shop/away shop/edge", "node-port-address": "shop/away shop/edge shop/front"},
		"iptables": {"ipvs": "shop/away shop/edge", "node-port-address": "shop/away shop/edge shop/front"},
		"ipvs":     {"ipvs": "shop/away shop/edge"},
	} {
		in.Backend = backend
		r, err := Compare(in)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, services(r.Differences)); diff != "" {
			t.Errorf("%s: differences (-want +got):\n%s", backend, diff)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "No connection was compared: kube-proxy's virtual servers,") || strings.Contains(b.String(), "nothing is different") {
			t.Errorf("%s: want no verdict about connections; got %v:\n%s", backend, err, b.String())
		}
	}
}

func TestModeIPVSFallsBackToEndpointsOfOtherNodes(t *testing.T) {
	in := load(t, latestIPTables, "differs")
	in.Before, in.Mode = [len(model.Families)]*Rules{}, "ipvs"
	for i := range in.Objects.Services {
		s := &in.Objects.Services[i]
		s.InternalTrafficPolicy, s.ExternalTrafficPolicy = "", ""
		if s.Name == "front" {
			s.InternalTrafficPolicy = "Local"
		}
	}
	for _, backend := range []string{"nftables", "ipvs"} {
		in.Backend = backend
		r, err := Compare(in)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(r.Differences, func(d Difference) bool {
			return strings.HasPrefix(d.What, "internalTrafficPolicy: Local")
		})
		if i < 0 || !slices.Equal(r.Differences[i].Services, []string{"shop/front"}) {
			t.Errorf("%s: no difference about internalTrafficPolicy of shop/front alone: %+v", backend, r.Differences)
		}
	}
}

func TestAMomentIsNoDifference(t *testing.T) {
	lasting, moment := Difference{ID: "a", What: "lasts"}, Difference{ID: "b", What: "is gone"}
	first := &Report{Differences: []Difference{lasting, moment}}
	r := (&Report{Differences: []Difference{lasting, {ID: "c", What: "is new"}}}).Confirming(first)
	if diff := cmp.Diff([]Difference{lasting}, r.Differences); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	want := []Stale{{What: "the cluster was changing: 2 differences only for a moment"}}
	if diff := cmp.Diff(want, r.Stale); diff != "" {
		t.Errorf("stale (-want +got):\n%s", diff)
	}
}

func TestRulesThatAreNotUnderstoodAreNamed(t *testing.T) {
	in := load(t, latestIPTables, "same")
	text, err := os.ReadFile(filepath.Join(recordings, latestIPTables, "same.ipv4.rules"))
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Replace(string(text), "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0", "-A KUBE-POSTROUTING -j MARK --set-dice 6", 1)
	if in.Before[model.IPv4], err = ReadIPTables(model.IPv4, rules); err != nil {
		t.Fatal(err)
	}
	r, err := Compare(in)
	if err != nil || !slices.Contains(r.Unread, "nat: -A KUBE-POSTROUTING -j MARK --set-dice 6") {
		t.Errorf("want the rule named; got %q, %v", r.Unread, err)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "=> no difference in what was compared") {
		t.Errorf("want no verdict about everything; got %v:\n%s", err, b.String())
	}
}

func TestListingsWithoutKubeProxyAreNone(t *testing.T) {
	if r, err := ReadIPTables(model.IPv4, "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n"); r != nil || err != nil {
		t.Errorf("want none; got %v, %v", r, err)
	}
	if r, err := ReadNFT(model.IPv4, "table ip vmapd {\n}\n"); r != nil || err != nil {
		t.Errorf("want none; got %v, %v", r, err)
	}
}
