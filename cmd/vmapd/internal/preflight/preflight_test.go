package preflight_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/manifest"
)

// load returns the input for the texts of kube-proxy's and vmapd's configuration, without objects.
func load(t *testing.T, proxy, own string) preflight.Input {
	t.Helper()
	dir := t.TempDir()
	flags := []string{"--hostname-override=node-1"}
	for flag, text := range map[string]string{
		"config":       "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + proxy,
		"vmapd-config": "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n" + own,
	} {
		path := filepath.Join(dir, flag)
		testaid.Write(t, path, text)
		flags = append(flags, "--"+flag+"="+path)
	}
	var f config.Flags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(&f)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Notes {
		if strings.Contains(n.Text, "unknown field") || strings.Contains(n.Text, "already set") {
			t.Errorf("%s", n.Text)
		}
	}
	return preflight.Input{Config: c, Node: c.Model().NodeName, ProxyFile: "config.conf", OwnFile: "vmapd.yaml"}
}

// add adds the objects of a text to an input.
func add(t *testing.T, in *preflight.Input, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	testaid.Write(t, file, text)
	o, errs, err := manifest.Load([]string{file})
	if err != nil || len(errs) > 0 {
		t.Fatal(err, errs)
	}
	in.Objects = objects.Of(o)
}

func read(t *testing.T, cluster string) string {
	t.Helper()
	return testaid.Read(t, "../../../../testdata/preflight/"+cluster+"/objects.yaml")
}

func ids(list []preflight.Difference) (all []string) {
	for _, d := range list {
		all = append(all, d.ID)
	}
	return all
}

// Each row is shown with a Service that it concerns, and is not shown with one that it does not.
func TestDifferencesOfServices(t *testing.T) {
	const (
		base = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}\nspec: {clusterIP: 172.30.0.9, "
		port = "ports: [{port: 80, nodePort: 30080}]"
		node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {addresses: [{type: InternalIP, address: " +
			"192.168.0.2}]}\n---\n" +
			"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: k}\nspec: {cidrs: [172.30.0.0/16]}\n---\n"
		plain  = base + "ports: [{port: 80}]}\n"
		hinted = plain + "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, namespace: " +
			"shop, labels: {kubernetes.io/service-name: a}}\naddressType: IPv4\nports: [{port: 80}]\nendpoints: " +
			"[{addresses: [10.0.0.2], hints: {forNodes: [{name: node-1}]}}]\n"
		edge   = base + "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, " + port + "}\n"
		ranges = base + "externalIPs: [192.0.2.9], loadBalancerSourceRanges: [203.0.113.0/25], ports: [{port: " +
			"80}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.9}]}}\n"
		inside  = base + "externalIPs: [172.30.9.9], ports: [{port: 80}]}\n"
		proxied = base + "ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 172.30.9.9, ipMode: Proxy}]}}\n"
		claimed = base + "ports: [{port: 80}]}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: b, namespace: " +
			"shop}\nspec: {clusterIP: 172.30.0.10, externalIPs: [172.30.0.9], ports: [{port: 80}]}\n"
	)
	for _, tt := range []struct {
		id, proxy, own string
		version        int
		with           string // a Service that it concerns
		without        string // one that it does not; "" means the same objects
		instead        string // the configuration with which it does not apply to the same objects
		own2           string // vmapd's configuration then
	}{
		{id: "node-port-address", with: base + port + "}\n", without: plain, instead: "mode: nftables\n"},
		{id: "node-port-address", with: base + port + "}\n", instead: "mode: iptables\n"},
		{id: "node-port-address", with: base + port + "}\n", instead: "nodePortAddresses: [0.0.0.0/0, \"::/0\"]\n"},
		{id: "node-port-loopback", with: base + port + "}\n", without: plain, instead: "iptables: {localhostNodePorts: " +
			"false}\n"},
		{id: "node-port-loopback", with: base + port + "}\n", instead: "nodePortAddresses: [192.168.0.0/24]\n"},
		{id: "external-in-service-cidr", with: inside, without: plain, own2: "externalAddresses: {allowServiceCIDRs: " +
			"true}\n"},
		{id: "external-in-service-cidr", proxy: "mode: nftables\n", with: inside, without: proxied},
		{id: "problem", with: claimed, own: "externalAddresses: {allowServiceCIDRs: true}\n", without: inside},
		{id: "source-ranges", with: ranges, without: inside, instead: "mode: nftables\n"},
		{id: "node-hints", version: 33, with: hinted, without: plain, instead: "featureGates: " +
			"{PreferSameTrafficDistribution: true}\n"},
		{
			id: "node-hints", proxy: "featureGates: {PreferSameTrafficDistribution: false}\n", version: 36, with: hinted,
			instead: "mode: \"\"\n",
		},
		{id: "forward-policy", with: plain, instead: "mode: iptables\n"},
		{id: "forward-policy", proxy: "mode: ipvs\n", own: "backend: nftables\n", with: plain, instead: "mode: nftables\n"},
		{id: "input-policy", with: edge, without: base + port + "}\n", instead: "mode: nftables\n"},
		{id: "invalid-packets", with: plain, instead: "conntrack: {tcpBeLiberal: true}\n"},
		{
			id: "invalid-packets", proxy: "mode: iptables\n", with: plain, own2: "dropInvalid: true\n",
			instead: "mode: iptables\n",
		},
		{id: "ipvs-device", proxy: "mode: ipvs\n", own: "backend: nftables\n", with: plain, instead: "mode: ipvs\n"},
		{id: "ipvs-scheduler", proxy: "mode: ipvs\n", own: "backend: iptables\n", with: plain, instead: "mode: ipvs\n"},
		{
			id: "ipvs-timeouts", proxy: "mode: ipvs\nipvs: {udpTimeout: 10s}\n", own: "backend: nftables\n", with: plain,
			instead: "mode: ipvs\n", own2: "backend: nftables\n",
		},
		{id: "ipvs-local", proxy: "mode: ipvs\n", with: edge, without: plain, instead: "mode: iptables\n"},
		{
			id: "ipvs-local", proxy: "mode: ipvs\n", with: base + "internalTrafficPolicy: Local, ports: [{port: 80}]}\n",
			without: plain,
		},
		{id: "userspace-source", own: "backend: userspace\n", with: plain, instead: "mode: \"\"\n"},
		{
			id: "userspace-sctp", own: "backend: userspace\n", with: base + "ports: [{port: 80, protocol: SCTP}]}\n",
			without: plain,
		},
		{id: "session-affinity", with: base + "sessionAffinity: ClientIP, ports: [{port: 80}]}\n", without: plain},
		{id: "connection-retry", with: plain, own2: "connectionRetry: false\n"},
		{id: "ipvs-connections", proxy: "mode: ipvs\n", own: "backend: nftables\n", with: plain, instead: "mode: ipvs\n"},
		{id: "unused-port", with: plain, instead: "mode: nftables\n"},
		{id: "unallocated-address", with: plain, version: 36, instead: "mode: nftables\n"},
		{
			id: "unallocated-address", proxy: "mode: nftables\n", version: 32, with: plain, own2: "backend: userspace\n",
			instead: "mode: nftables\n",
		},
		{id: "source-ranges-endpoints", with: ranges, without: inside, instead: "mode: nftables\n"},
		{id: "node-port-endpoints", with: base + port + "}\n", without: plain, instead: "mode: iptables\n"},
		{id: "chains", proxy: "mode: iptables\n", with: plain, instead: "mode: nftables\n"},
		{id: "tables", proxy: "mode: nftables\n", with: plain, instead: "mode: iptables\n"},
		{id: "backend", with: plain, instead: "mode: nftables\n"},
	} {
		t.Run(tt.id, func(t *testing.T) {
			found := func(proxy, own, objects string) bool {
				in := load(t, proxy, own)
				in.Version = tt.version
				add(t, &in, node+objects)
				r := preflight.Compare(in)
				all := slices.Concat(r.Differences, r.Notes)
				i := slices.IndexFunc(all, func(d preflight.Difference) bool { return d.ID == tt.id })
				if i >= 0 && (all[i].Title == "" || all[i].Change == "") {
					t.Errorf("it has no words: %+v", all[i])
				}
				return i >= 0
			}
			if !found(tt.proxy, tt.own, tt.with) {
				t.Error("it is not shown where it applies")
			}
			if tt.without != "" && found(tt.proxy, tt.own, tt.without) {
				t.Error("it is shown although it concerns no Service")
			}
			if tt.instead+tt.own2 != "" && found(tt.instead, tt.own2, tt.with) {
				t.Error("it is shown with another configuration")
			}
		})
	}
}

// With the settings in their files, the differences that have one are gone, and no other is there.
func TestSettingsKeepWhatWas(t *testing.T) {
	for _, proxy := range []string{"", "mode: iptables\n", "mode: ipvs\n", "nodePortAddresses: [\"192.168.0.0/24\", " +
		"127.0.0.0/8]\n"} {
		settings := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(proxy), &settings); err != nil {
			t.Fatal(err)
		}
		files := map[string]map[string]any{"config.conf": settings, "vmapd.yaml": {}}
		before := load(t, proxy, "")
		add(t, &before, read(t, "differs"))
		r := preflight.Compare(before)
		var without []string
		for _, d := range r.Differences {
			if d.Setting == nil {
				without = append(without, d.ID)
				continue
			}
			var set map[string]any
			if err := yaml.UnmarshalStrict([]byte(d.Setting.YAML), &set); err != nil {
				t.Fatalf("%s: %v", d.Setting.YAML, err)
			}
			maps.Copy(files[d.Setting.File], set)
		}
		text := map[string]string{}
		for name, set := range files {
			data, err := yaml.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			if text[name] = string(data); len(set) == 0 {
				text[name] = ""
			}
		}
		after := load(t, text["config.conf"], text["vmapd.yaml"])
		add(t, &after, read(t, "differs"))
		if diff := cmp.Diff(without, ids(preflight.Compare(after).Differences)); diff != "" {
			t.Errorf("%q: differences that stay (-want +got):\n%s", proxy, diff)
		}
	}
}

func TestText(t *testing.T) {
	r := preflight.Report{
		Node: "n", Mode: "iptables", Version: "1.36", Backend: "nftables", Services: 9,
		Differences: []preflight.Difference{{
			Title: strings.Repeat("word ", 20), Change: "Change.", Details: []string{"one"}, Remedy: "remedy",
			Services: []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7"}, Setting: &preflight.Setting{
				File: "f.yaml",
				YAML: "a: b",
			},
		}},
		Configuration: []string{"a note"},
	}
	var b strings.Builder
	if err := report.Print(&b, report.InText, r, r.Write); err != nil {
		t.Fatal(err)
	}
	const want = `Node n, 9 Services: from kube-proxy 1.36, mode iptables, to vmapd with the
backend nftables.

1. word word word word word word word word word word word word word word word
   word word word word word
   Change.
   - one
   7 Services: a/1, a/2, a/3, a/4, a/5, and 2 more
   -> remedy
   To keep it as it was, in f.yaml:
     a: b

Configuration:
-  a note

=> 1 difference, 0 notes
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
