package config

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
)

// A field that nobody has said anything about must not come in unnoticed.
func TestEveryFieldIsInTheTable(t *testing.T) {
	for _, tt := range []struct {
		settings []setting
		of       reflect.Type
	}{
		{kubeProxySettings, reflect.TypeFor[proxyconfig.KubeProxyConfiguration]()},
		{ownSettings, reflect.TypeFor[VmapdConfiguration]()},
	} {
		want, got := map[string]int{}, map[string]int{}
		for _, m := range leaves(tt.of) {
			want[m.name] = 1
		}
		for _, s := range tt.settings {
			if s.field != "" {
				got[s.field]++
			}
		}
		if len(want) < 8 {
			t.Errorf("%v: found only %d fields", tt.of, len(want))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields of %v (-), the table (+):\n%s", tt.of, diff)
		}
	}
}

func TestEveryFlagIsInTheTable(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	want, got := map[string]bool{}, map[string]bool{}
	fs.VisitAll(func(flag *pflag.Flag) {
		want[flag.Name] = true
		if flag.Usage == "" {
			t.Errorf("--%s: nothing says what it is", flag.Name)
		}
	})
	for _, s := range slices.Concat(kubeProxySettings, ownSettings) {
		if s.flag != "" {
			got[s.flag] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-), the table (+):\n%s", diff)
	}
}

// kube-proxy's flags keep their names, types and defaults, but for what stands here.
func TestFlagsAreAsKubeProxyHasThem(t *testing.T) {
	var f Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.AddFlags(fs)
	for line := range strings.Lines(`bind-address-hard-fail bool false
cleanup bool false
cluster-cidr stringSlice []
config string
config-sync-period duration 15m0s
conntrack-max-per-core int32 32768
conntrack-min int32 131072
conntrack-tcp-be-liberal bool false
conntrack-tcp-timeout-close-wait duration 1h0m0s
conntrack-tcp-timeout-established duration 24h0m0s
conntrack-udp-timeout duration 0s
conntrack-udp-timeout-stream duration 0s
detect-local-mode string ClusterCIDR
feature-gates mapStringBool
healthz-bind-address string 0.0.0.0:10256
healthz-port int32 10256
hostname-override string
init-only bool false
iptables-localhost-nodeports bool true
iptables-masquerade-bit int32 14
iptables-sync-period duration 30s
ipvs-exclude-cidrs stringSlice []
ipvs-min-sync-period duration 0s
ipvs-scheduler string
ipvs-strict-arp bool false
ipvs-sync-period duration 30s
ipvs-tcp-timeout duration 0s
ipvs-tcpfin-timeout duration 0s
ipvs-udp-timeout duration 0s
kube-api-burst int32 10
kube-api-content-type string application/vnd.kubernetes.protobuf
kube-api-qps float32 5
kubeconfig string
log-flush-frequency duration 5s
log-json-info-buffer-size quantity 0
log-json-split-stream bool false
log-text-info-buffer-size quantity 0
log-text-split-stream bool false
logging-format string text
masquerade-all bool false
master string
metrics-bind-address string 127.0.0.1:10249
metrics-port int32 10249
nodeport-addresses stringSlice []
oom-score-adj int32 -999
pod-bridge-interface string
pod-interface-name-prefix string
profiling bool false
proxy-mode string
show-hidden-metrics-for-version string
v Level 0
vmodule pattern=N,...
write-config-to string
`) {
		line = strings.TrimSpace(line)
		name, want, _ := strings.Cut(line, " ")
		flag := fs.Lookup(name)
		if flag == nil {
			t.Errorf("there is no --%s", name)
			continue
		}
		if got := strings.TrimSpace(flag.Value.Type() + " " + flag.DefValue); got != want {
			t.Errorf("--%s: got %s, want %s", name, got, want)
		}
	}
}

const document = "../../docs/configuration.md"

// The tables in the documentation are those of the code.
func TestTheDocumentIsUpToDate(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, table := range map[string]string{
		"kube-proxy": tableOf(kubeProxySettings), "vmapd": tableOf(ownSettings), "gates": gateTable(),
		"annotations": annotationTable(),
	} {
		begin, end := fmt.Sprintf("<!-- table: %s -->\n", name), "<!-- end -->\n"
		before, rest, ok := strings.Cut(want, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for the table %s", document, name)
		}
		want = before + begin + table + end + after
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("%s, -want +got (-update rewrites it):\n%s", document, diff)
	}
}

func tableOf(settings []setting) string {
	var b strings.Builder
	b.WriteString("\n| Field | Flag | Here | What |\n|---|---|---|---|\n")
	code := func(s, prefix string) string {
		if s == "" {
			return ""
		}
		return "`" + prefix + s + "`"
	}
	for _, s := range settings {
		fmt.Fprintf(&b, "| %s | %s | %v | %s |\n", code(s.field, ""), code(s.flag, "--"), s.kind, s.what)
	}
	return strings.ReplaceAll(b.String(), "|  |", "| |") + "\n"
}

func annotationTable() string {
	var b strings.Builder
	b.WriteString("\n| Annotation | Value | For example | Without it, or if it is invalid |\n|---|---|---|---|\n")
	for _, a := range model.Annotations {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", a.Name, a.Sets, strings.Join(a.Examples, "`, `"), a.Otherwise)
	}
	return b.String() + "\n"
}

func gateTable() string {
	var b strings.Builder
	b.WriteString("\n| Gate | Here |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, gates[name])
	}
	return b.String() + "\n"
}
