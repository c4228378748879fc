package config_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// flags parses a command line of the daemon.
func flags(t testing.TB, args ...string) *config.Flags {
	t.Helper()
	var f config.Flags
	fs := pflag.NewFlagSet("vmapd", pflag.ContinueOnError)
	f.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return &f
}

const (
	header    = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	ownHeader = "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n"
)

// files writes the two files, without their folder in what messages say. An empty one is
// not given.
type files struct{ proxy, own string }

func (f files) load(t testing.TB, args ...string) (*config.Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if f.proxy != "" {
		write(t, "proxy.yaml", header+f.proxy)
		args = append(args, "--config=proxy.yaml")
	}
	if f.own != "" {
		write(t, "own.yaml", ownHeader+f.own)
		args = append(args, "--vmapd-config=own.yaml")
	}
	return config.Load(flags(t, args...))
}

func (f files) mustLoad(t testing.TB, args ...string) *config.Config {
	t.Helper()
	c, err := f.load(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t testing.TB, path, text string) {
	t.Helper()
	testaid.Write(t, path, text)
}

// notes returns what start says.
func notes(c *config.Config) string {
	var b strings.Builder
	for _, n := range c.Notes {
		event := ""
		if n.Event {
			event = " (event)"
		}
		fmt.Fprintf(&b, "%v%s %s\n", n.Level, event, n.Text)
	}
	return b.String()
}

// A file without anything has kube-proxy's defaults.
func TestDefaults(t *testing.T) {
	golden, err := filepath.Abs("testdata/defaults.golden")
	if err != nil {
		t.Fatal(err)
	}
	c := files{proxy: "mode: iptables\n"}.mustLoad(t)
	testaid.Golden(t, golden, asText(t, c.KubeProxy))
}

func asText(t testing.TB, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Without a file, flags and a file with the same say the same.
func TestFlagsAndFileSayTheSame(t *testing.T) {
	fromFlags := files{}.mustLoad(t, "--proxy-mode=nftables", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56",
		"--masquerade-all",
		"--nodeport-addresses=192.168.0.0/24,localhost", "--bind-address=192.168.0.2", "--metrics-bind-address=0.0.0.0",
		"--oom-score-adj=-5",
		"--iptables-sync-period=20s", "--iptables-min-sync-period=2s", "--conntrack-max-per-core=0",
		"--conntrack-udp-timeout=10s",
		"--kubeconfig=k", "--kube-api-qps=50", "--kube-api-burst=100", "--hostname-override=Node-1", "--ipvs-scheduler=lc",
		"--ipvs-exclude-cidrs=192.168.9.0/24", "--ipvs-udp-timeout=5s", "-v4", "--logging-format=json",
		"--feature-gates=WatchList=true")
	fromFile := files{proxy: `mode: nftables
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
nftables: {masqueradeAll: true, syncPeriod: 20s, minSyncPeriod: 2s}
iptables: {masqueradeAll: true, syncPeriod: 20s, minSyncPeriod: 2s}
nodePortAddresses: [192.168.0.0/24, localhost]
bindAddress: 192.168.0.2
metricsBindAddress: 0.0.0.0
oomScoreAdj: -5
conntrack: {maxPerCore: 0, udpTimeout: 10s}
clientConnection: {kubeconfig: k, qps: 50, burst: 100}
hostnameOverride: Node-1
ipvs: {scheduler: lc, excludeCIDRs: [192.168.9.0/24], udpTimeout: 5s}
logging: {verbosity: 4, format: json, flushFrequency: 5s}
featureGates: {WatchList: true}
`}.mustLoad(t)
	testaid.Equal(t, "file (-) and flags (+)", asText(t, fromFile.KubeProxy), asText(t, fromFlags.KubeProxy))
	testaid.Equal(t, "in force", inForce(fromFile), inForce(fromFlags))
	if m := fromFile.Model(); !m.MasqueradeAll || len(m.LocalPods.ClusterCIDRs) != 2 || m.PrimaryAddress.String() != "192.168.0.2" {
		t.Errorf("model %+v", m)
	}
	if o := fromFlags.IPVS(); o.Scheduler != "lc" || len(o.ExcludeCIDRs) != 1 ||
		o.Timeouts != (ipvs.Timeouts{UDP: 5 * time.Second}) {
		t.Errorf("ipvs %+v", o)
	}
}

// With --config, kube-proxy's other flags do not count, and each is named; flags about
// the log are put over the file.
func TestPrecedence(t *testing.T) {
	c := files{
		proxy: "mode: nftables\nclusterCIDR: 10.0.0.0/8\nhostnameOverride: from-file\nclientConnection: {kubeconfig: " +
			"file}\n" +
			"logging: {verbosity: 1, format: text, vmodule: [{filePattern: a, verbosity: 1}]}\n",
		own: "lbAlgorithm: maglev\ndropInvalid: true\nconnectionGrace: 1m\n",
	}.mustLoad(t, "--cluster-cidr=172.16.0.0/12", "--kubeconfig=flag", "--metrics-bind-address=", "--healthz-port=0",
		"--windows-service",
		"--hostname-override=From-Flag", "--master=https://192.168.0.1", "-v=5", "--vmodule=b=2",
		"--lb-algorithm=maglev-port", "--drop-invalid=false")
	m := c.Model()
	if got := m.LocalPods.ClusterCIDRs[0].String(); got != "10.0.0.0/8" {
		t.Errorf("--cluster-cidr is not ignored: %v", got)
	}
	if c.KubeProxy.MetricsBindAddress != "127.0.0.1:10249" || c.KubeProxy.HealthzBindAddress != "0.0.0.0:10256" {
		t.Errorf("flags disable %q, %q", c.KubeProxy.MetricsBindAddress, c.KubeProxy.HealthzBindAddress)
	}
	conn, master := c.Client()
	if m.NodeName != "from-flag" || master != "https://192.168.0.1" || conn.Kubeconfig != "file" {
		t.Errorf("node %q, client %+v, master %q", m.NodeName, conn, master)
	}
	if c.KubeProxy.Logging.Verbosity != 5 || c.KubeProxy.Logging.Format != "text" {
		t.Errorf("verbosity %d, format %s", c.KubeProxy.Logging.Verbosity, c.KubeProxy.Logging.Format)
	}
	want := logsapi.VModuleConfiguration{{FilePattern: "b", Verbosity: 2}}
	testaid.Equal(t, "vmodule", want, c.KubeProxy.Logging.VModule)
	if m.Algorithm != model.MaglevPort || m.DropInvalid || m.ConnectionGrace != time.Minute {
		t.Errorf("our flags do not go before our file: %+v", m)
	}
	wantNotes := `WARN --cluster-cidr: ignored because of --config, as by kube-proxy
WARN --healthz-port: ignored because of --config, as by kube-proxy
WARN --kubeconfig: ignored because of --config, as by kube-proxy
WARN --metrics-bind-address: ignored because of --config, as by kube-proxy
WARN --windows-service: ignored because of --config, as by kube-proxy
INFO --vmodule: ignored: the verbosity is the same in all files
`
	testaid.Equal(t, "notes", wantNotes, notes(c))
	if got := c.FlagValues()["cluster-cidr"]; got != "[172.16.0.0/12]" {
		t.Errorf("FlagValues has %q", got)
	}
}

func TestWhatIsUnknownIsNamedAndLeftOut(t *testing.T) {
	c := files{proxy: "mode: nftables\nclusterCIDR: 10.0.0.0/8\nmode: nftables\nresourceContainer: /x\nconntrack: " +
		"{max: 5, min: 7}\n"}.mustLoad(t)
	if *c.KubeProxy.Conntrack.Min != 7 {
		t.Errorf("conntrack.min: got %d, want 7", *c.KubeProxy.Conntrack.Min)
	}
	want := `WARN proxy.yaml: yaml: unmarshal errors: line 5: key "mode" already set in map: ignored
WARN proxy.yaml: unknown field "conntrack.max": ignored
WARN proxy.yaml: unknown field "resourceContainer": ignored
`
	testaid.Equal(t, "notes", want, notes(c))
	if _, err := (files{own: "backnd: ipvs\nexternalAddresses: {cert: x}\n"}).load(t); err == nil || err.Error() !=
		`own.yaml: unknown field "backnd"` {
		t.Errorf("our own file: %v", err)
	}
}

// What has been written loads again as the same.
func TestWhatIsWrittenLoadsAgain(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   files
		args []string
	}{
		{"flags", files{}, []string{
			"--cluster-cidr=10.0.0.0/8", "--iptables-sync-period=5s", "-v3",
			"--hostname-override=n",
		}},
		{"iptables by a flag", files{}, []string{
			"--proxy-mode=iptables", "--iptables-min-sync-period=3s",
			"--masquerade-all",
		}},
		{"no mode", files{proxy: "iptables: {syncPeriod: 7s, minSyncPeriod: 2s, masqueradeAll: true}\n"}, nil},
		{"iptables", files{proxy: "mode: iptables\n"}, nil},
		{"iptables, but for the backend", files{proxy: "mode: iptables\n", own: "backend: nftables\n"}, nil},
		{"ipvs", files{proxy: "mode: ipvs\nipvs: {scheduler: wrr, excludeCIDRs: [10.0.0.0/8], minSyncPeriod: 3s}\n"}, nil},
		{"nftables", files{proxy: "mode: nftables\nnodePortAddresses: [localhost, primary]\nfeatureGates: {X: " +
			"false}\nbindAddress: '::'\n"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.in.mustLoad(t, tt.args...)
			if err := c.WriteFile("written.yaml"); err != nil {
				t.Fatal(err)
			}
			args := []string{"--config=written.yaml"}
			if tt.in.own != "" {
				args = append(args, "--vmapd-config=own.yaml")
			}
			again, err := config.Load(flags(t, args...))
			if err != nil {
				t.Fatal(err)
			}
			if err := again.WriteFile("again.yaml"); err != nil {
				t.Fatal(err)
			}
			testaid.Equal(t, "written (-), read and written (+)", testaid.Read(t, "written.yaml"), testaid.Read(t, "again.yaml"))
			if strings.Contains(notes(again), "unknown field") {
				t.Errorf("what is written is odd:\n%s", notes(again))
			}
			testaid.Equal(t, "in force", inForce(c), inForce(again))
		})
	}
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// inForce is all that a Config says, but for where it comes from.
func inForce(c *config.Config) string {
	own, _ := json.Marshal(c.Own)
	return fmt.Sprintf("%v %v\n%s\n%+v\n%+v\n%+v\n%+v\n%v %v %v\n%s", c.SyncPeriod, c.MinSyncPeriod, c.Backend, c.Model(),
		c.IPVS(), c.IPTables(), c.KubeProxy.ClientConnection, c.KubeProxy.HealthzBindAddress, c.KubeProxy.MetricsBindAddress, asJSON(c.KubeProxy.Conntrack), own)
}

func TestFeatureGates(t *testing.T) {
	c := files{proxy: "mode: nftables\nclusterCIDR: 10.0.0.0/8\nfeatureGates: {NFTablesNetlink: true, " +
		"AllowServiceExternalIPs: false, ContextualLogging: true, New: true}\n"}.mustLoad(t)
	want := "INFO proxy.yaml: featureGates=AllowServiceExternalIPs=false: " +
		`external IPs of Services are served unless it is false
WARN proxy.yaml: featureGates=ContextualLogging=true: no effect: vmapd's behaviour does not depend on this gate
WARN proxy.yaml: featureGates=NFTablesNetlink=true: no effect: vmapd's behaviour does not depend on this gate
WARN proxy.yaml: featureGates=New=true: no effect: vmapd's behaviour does not depend on this gate
`
	testaid.Equal(t, "notes", want, notes(c))
	for gates, want := range map[string]bool{
		"WatchList=true": false, "WatchList=false": true,
		"WatchListClient=false": true,
	} {
		if got := (files{}).mustLoad(t, "--feature-gates="+gates).PlainLists(); got != want {
			t.Errorf("%s: plain lists %v, want %v", gates, got, want)
		}
	}
}

// loadText loads a file with this text, with no header put before it.
func loadText(t testing.TB, text string) (*config.Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "proxy.yaml", text)
	return config.Load(flags(t, "--config=proxy.yaml"))
}

func FuzzLoad(f *testing.F) {
	paths, err := filepath.Glob("testdata/kubeadm-*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		f.Add([]byte(testaid.Read(f, path)))
	}
	f.Add([]byte(ownHeader + "externalAddresses: {ipRanges: [192.168.99.0/24]}\n"))
	f.Add([]byte(header + "a: &a [*a]\n"))
	f.Add([]byte(header + "iptables: null\nconntrack: {min: 1e9}\nlogging: {flushFrequency: 5s, vmodule: [{}]}\n"))
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, text []byte) {
		write(t, path, string(text))
		for _, flag := range []string{"--config=", "--vmapd-config="} {
			c, err := config.Load(flags(t, flag+path))
			if err != nil {
				if !strings.Contains(err.Error(), path) {
					t.Errorf("%v: does not name the file", err)
				}
				continue
			}
			if err := c.WriteFile(path + ".written"); err != nil {
				t.Error(err)
			}
			model.NewBuilder(c.Model()).Snapshot()
		}
	})
}
