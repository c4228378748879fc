package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// preflightNode is a node with the addresses of the recorded clusters.
func preflightNode(t *testing.T) *lab.Namespace {
	t.Helper()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	ns, err := lab.NewNamespace("node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	for _, a := range []string{"192.168.0.2/24", "fd00:192:168::2/64", "172.17.0.1/16", "fd00:172:17::1/64"} {
		if err := ns.AddAddr("lo", netip.MustParsePrefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	return ns
}

var packetCount = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// uncounted returns all rules without what they counted: preflight asks kube-proxy for its mode, over loopback.
func uncounted(t *testing.T, ns *lab.Namespace) string {
	t.Helper()
	rules, _ := runInside(t, ns, "", "nft", "list", "ruleset")
	return packetCount.ReplaceAllString(rules, "counter")
}

// runInside runs a program in the namespace, with an input, and returns its output and exit code.
func runInside(t *testing.T, ns *lab.Namespace, stdin, name string, args ...string) (string, int) {
	t.Helper()
	cmd := ns.Command(t.Context(), name, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// vmapdProgram returns this test binary under the name by which it is vmapd.
func vmapdProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vmapd")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func recorded(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{testdata(t), "kube-proxy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// On a node, preflight reads the rules from the kernel, and changes nothing.
func TestPreflightReadsTheRulesOfItsNode(t *testing.T) {
	t.Parallel()
	const version = "1.36.3"
	for _, c := range []struct {
		name, cluster string
		restore       map[string]string // programs and inputs
		want          []string
		code          int
	}{
		{"nftables, the same", "same", map[string]string{
			"nft -f -": recorded(t, version+"-nftables", "same.ipv4.nft") + recorded(t, version+"-nftables", "same.ipv6.nft"),
		}, []string{"mode nftables", "(IPv4, IPv6)", "=> nothing is different"}, 0},
		{"nftables, different", "differs", map[string]string{
			"nft -f -": recorded(t, version+"-nftables", "differs.ipv4.nft"),
		}, []string{"mode nftables", "(IPv4)", "load balancers' addresses in a ServiceCIDR are not served", "=> 1 difference"}, exitDifferent},
		{"iptables", "differs", map[string]string{
			"iptables-restore":  recorded(t, version+"-iptables", "differs.ipv4.rules"),
			"ip6tables-restore": recorded(t, version+"-iptables", "differs.ipv6.rules"),
		}, []string{"mode iptables", "(IPv4, IPv6)", "addresses: 172.17.0.1, fd00:172:17::1", "chain FORWARD", "=> 7 differences"}, exitDifferent},
		{"no rules", "same", nil, []string{"this node has no rules of kube-proxy's"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := preflightNode(t)
			if v, _ := runInside(t, ns, "", "nft", "--version"); strings.Contains(v, " v0.") || strings.Contains(v, " v1.0.0 ") {
				t.Skip("this nft is older than kube-proxy needs")
			}
			for command, input := range c.restore {
				// The kernel of a test may have no nfacct, which only counts.
				input = strings.ReplaceAll(input, "-m nfacct --nfacct-name  ct_state_invalid_dropped_pkts ", "")
				input = strings.ReplaceAll(input, "-m nfacct --nfacct-name  localhost_nps_accepted_pkts ", "")
				words := strings.Fields(command)
				if out, code := runInside(t, ns, input, words[0], words[1:]...); code != 0 {
					t.Fatalf("%s: %s", command, out)
				}
			}
			before := uncounted(t, ns)
			folder := filepath.Join(testdata(t), "kube-proxy", c.cluster)
			out, code := runInside(t, ns, "", vmapdProgram(t), "preflight", "-f", folder+"/objects.yaml", "--kube-proxy-config", folder+"/config.conf")
			if code != c.code {
				t.Errorf("want exit code %d; got %d:\n%s", c.code, code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("want %q in:\n%s", want, out)
				}
			}
			if after := uncounted(t, ns); after != before {
				t.Errorf("want the rules as they were; before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// A kube-proxy with mode ipvs is told by itself or by its device, and nothing is claimed about its connections.
func TestPreflightTellsModeIPVS(t *testing.T) {
	t.Parallel()
	const not = "No connection was compared: kube-proxy's virtual servers, ipsets and rules of mode ipvs are not read."
	leftovers := recorded(t, "1.36.3-nftables", "same.ipv4.nft")
	for _, c := range []struct {
		name, rules, answers string
		device               bool
		mode                 string // in the configuration
		want                 []string
		code                 int
	}{
		{"it says so", "", "ipvs", false, "", []string{not, "no Service's address is on a device of the node"}, exitDifferent},
		{"its configuration says so", "", "", false, "ipvs", []string{not, "the backend ipvs after", "before, IPVS used endpoints on other nodes"}, exitDifferent},
		{"its device is there", "", "", true, "", []string{not, "mode: ipvs, by the device kube-ipvs0 of this node"}, exitDifferent},
		{"it runs with another mode", "", "ipvs", true, "iptables", []string{not, "mode: iptables in kube-proxy's configuration, but the one of this node runs with ipvs"}, exitDifferent},
		{"rules of another mode are left", leftovers, "ipvs", true, "", []string{not, "the IPv4 rules of mode nftables on this node are leftovers"}, exitDifferent},
		{"rules of another mode, and no answer", leftovers, "", true, "ipvs", []string{not, "the IPv4 rules of mode nftables on this node are leftovers"}, exitDifferent},
		{"the device is left", leftovers, "nftables", true, "", []string{"kube-proxy with mode nftables before", "were compared (IPv4)"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := preflightNode(t)
			if c.rules != "" {
				if out, code := runInside(t, ns, c.rules, "nft", "-f", "-"); code != 0 {
					t.Skipf("this nft is older than kube-proxy needs: %s", out)
				}
			}
			if c.device {
				if err := ns.AddBridge("kube-ipvs0"); err != nil { // by its name; this kernel may have no dummy devices
					t.Fatal(err)
				}
			}
			if c.answers != "" {
				answerMode(t, ns, c.answers)
			}
			folder := filepath.Join(testdata(t), "kube-proxy", "same")
			conf := filepath.Join(t.TempDir(), "config.conf")
			text := recorded(t, "same", "config.conf") + "\nmode: \"" + c.mode + "\"\n"
			if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, code := runInside(t, ns, "", vmapdProgram(t), "preflight", "-f", folder+"/objects.yaml", "--kube-proxy-config", conf)
			if code != c.code {
				t.Errorf("want exit code %d; got %d:\n%s", c.code, code, out)
			}
			words := strings.Join(strings.Fields(out), " ")
			for _, want := range c.want {
				if !strings.Contains(words, want) {
					t.Errorf("want %q in:\n%s", want, out)
				}
			}
		})
	}
}

// answerMode answers as a kube-proxy of that mode in a namespace.
func answerMode(t *testing.T, ns *lab.Namespace, mode string) {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", metricsAddress)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/proxyMode" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(mode))
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// With KUBE, a folder with the programs of Kubernetes, preflight looks at a kube-proxy that runs.
func TestPreflightBesideKubeProxy(t *testing.T) {
	programs := os.Getenv("KUBE")
	if programs == "" {
		t.Skip("KUBE does not name a folder with kube-proxy")
	}
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			ns := preflightNode(t)
			var server *apitest.Server
			err := ns.Do(func() (err error) {
				server, err = apitest.NewServer(apitest.Options{JSONOnly: true})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			for document := range strings.SplitSeq(recorded(t, "same", "objects.yaml"), "\n---\n") {
				obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(document))
				if err != nil {
					t.Fatal(err)
				}
				server.Set(obj)
			}
			folder := t.TempDir()
			kubeconfig, err := server.Kubeconfig(folder, apitest.Form{})
			if err != nil {
				t.Fatal(err)
			}
			conf := strings.Replace(recorded(t, "same", "config.conf"), "conntrack: {", "conntrack: {maxPerCore: 0, min: 0, ", 1) +
				"mode: " + mode + "\nhostnameOverride: node-1\nclientConnection: {kubeconfig: " + kubeconfig + "}\n"
			path := filepath.Join(folder, "config.conf")
			if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			proxy := ns.Command(ctx, filepath.Join(programs, "kube-proxy"), "--config="+path)
			var log bytes.Buffer
			proxy.Stdout, proxy.Stderr = &log, &log
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { stop(); _ = proxy.Wait() }()

			var out string
			code := 1
			for deadline := time.Now().Add(time.Minute); code == 1 && time.Now().Before(deadline); time.Sleep(time.Second) {
				out, code = runInside(t, ns, "", vmapdProgram(t), "preflight", "--live", "--kubeconfig", kubeconfig, "--node-name", "node-1", "--backend=nftables")
			}
			if code != 0 || !strings.Contains(out, "mode "+mode) || !strings.Contains(out, "=> nothing is different") || !strings.Contains(out, "mode: kube-proxy reports the one in which it runs") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			server.Delete(mustDecode(t, recorded(t, "same", "objects.yaml"), "name: host, namespace"))
			// kube-proxy's rules follow within its period, or are told apart as stale.
			out, code = runInside(t, ns, "", vmapdProgram(t), "preflight", "--live", "--kubeconfig", kubeconfig, "--node-name", "node-1", "--backend=nftables")
			if code != 0 {
				t.Errorf("after a deletion: exit code %d:\n%s", code, out)
			}
		})
	}
}

// mustDecode decodes the first document that has a text.
func mustDecode(t *testing.T, documents, has string) runtime.Object {
	t.Helper()
	for document := range strings.SplitSeq(documents, "\n---\n") {
		if strings.Contains(document, has) {
			obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(document))
			if err != nil {
				t.Fatal(err)
			}
			return obj
		}
	}
	t.Fatalf("no object with %q", has)
	return nil
}
