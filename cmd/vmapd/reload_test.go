package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/internal/testbed/apitest"
)

// underLoad makes connections to web until the test ends, none of which may be lost.
func (c *apiCluster) underLoad(t *testing.T) {
	t.Helper()
	const rate = 100
	for _, to := range []netip.AddrPort{webVIP, webNodePort} {
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		report := make(chan lab.Report, 1)
		go func() {
			// A SYN that waits for a busy machine is not lost.
			report <- lab.Load{Rate: rate, Timeout: 10 * time.Second, Ask: func(ctx context.Context) (lab.Answer, error) {
				return c.Client.Ask(ctx, "tcp4", to)
			}}.Run(ctx)
		}()
		t.Cleanup(func() {
			time.Sleep(500 * time.Millisecond) // what the last change did shows after it
			stop()
			r := <-report
			if r.Lost() > 0 || r.Sent < rate/4 {
				t.Errorf("connections to %v: %v", to, &r)
			}
		})
	}
}

// reloaded is a daemon with both files in a ConfigMap.
type reloaded struct {
	*apiCluster
	*process
	mode  string
	files *configMap
	now   map[string]string
}

// startReloaded starts one in a mode.
func startReloaded(t *testing.T, mode string) *reloaded {
	t.Helper()
	c := startCluster(t)
	r := &reloaded{apiCluster: c, mode: mode, now: map[string]string{
		"config.conf": c.config("mode: "+mode, "nodePortAddresses: [primary]"), "vmapd.conf": ownConfig(),
	}}
	r.files = newConfigMap(t, r.now)
	r.process = c.start(t, "--config", r.files.path("config.conf"), "--vmapd-config", r.files.path("vmapd.conf"), "--hostname-override", lab.NodeName)
	r.waitFor(t, "msg=ready")
	wantStatus(t, c.Node, metricsURL+"/healthz", http.StatusOK)
	return r
}

func ownConfig(lines ...string) string {
	return "apiVersion: vmapd.io/v1alpha1\nkind: VmapdConfiguration\n" + strings.Join(lines, "\n") + "\n"
}

// set gives kube-proxy's file other lines beside the mode.
func (r *reloaded) set(t *testing.T, lines ...string) {
	t.Helper()
	r.now["config.conf"] = r.config(append([]string{"mode: " + r.mode}, lines...)...)
	r.files.set(t, r.now)
}

// setOwn gives our file other lines.
func (r *reloaded) setOwn(t *testing.T, lines ...string) {
	t.Helper()
	r.now["vmapd.conf"] = ownConfig(lines...)
	r.files.set(t, r.now)
}

// wantSource waits until a pod sees a new connection to web come from an address.
func (c *apiCluster) wantSource(t *testing.T, what string, isClient bool) {
	t.Helper()
	eventually(t, func() string {
		if a := c.ask(t, webVIP); (a.Source.Addr() == netip.MustParseAddr(lab.ClientIP4)) != isClient {
			return fmt.Sprintf("%s: a pod sees %v", what, a.Source)
		}
		return ""
	})
}

// wantAnswer waits until somebody answers.
func (c *apiCluster) wantAnswer(t *testing.T, what string, to netip.AddrPort) {
	t.Helper()
	eventually(t, func() string {
		if _, err := c.Client.Ask(t.Context(), "tcp", to); err != nil {
			return fmt.Sprintf("%s: %v", what, err)
		}
		return ""
	})
}

// wantRules waits until the rules have a text, or have it no more.
func (c *apiCluster) wantRules(t *testing.T, text string, there bool) {
	t.Helper()
	eventually(t, func() string {
		if strings.Contains(c.ruleset(t), text) != there {
			return fmt.Sprintf("the rules have %q: %v", text, !there)
		}
		return ""
	})
}

// secondNodeIP is one more address of the node.
const secondNodeIP = "192.168.0.77"

func (c *apiCluster) addSecondNodeIP(t *testing.T) {
	t.Helper()
	if err := c.Node.AddAddr(lab.UplinkName, netip.MustParsePrefix(secondNodeIP+"/32")); err != nil {
		t.Fatal(err)
	}
}

// Each setting that a running daemon applies takes effect without a restart, and no
// connection is lost meanwhile.
func TestSettingsChangeInPlace(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := startReloaded(t, mode)
			r.addSecondNodeIP(t)
			web := r.service(t, "web")
			web.Spec.ExternalTrafficPolicy, web.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
			r.api.Set(web)
			r.underLoad(t)
			r.changeTraffic(t)
			if mode == "nftables" {
				r.changeChoice(t)
			}
			r.changeNode(t)
			r.mustStay(t)
		})
	}
}

// changeTraffic changes what any backend can do.
func (r *reloaded) changeTraffic(t *testing.T) {
	t.Helper()
	second := netip.MustParseAddrPort(secondNodeIP + ":30080")
	if _, err := r.Client.Ask(t.Context(), "tcp", second); err == nil {
		t.Fatal("node ports answer on another address than the primary one")
	}
	const check = "http://" + secondNodeIP + ":32000"
	wantStatus(t, r.Client, "http://"+lab.NodeIP4+":32000", http.StatusOK)
	if got := get(r.Client, nil, check); got.err == nil {
		t.Errorf("a healthCheckNodePort answers on another address than the primary one: %v", got)
	}
	r.set(t, "nodePortAddresses: [all]")
	r.wantAnswer(t, "nodePortAddresses: [all]", second)
	wantStatus(t, r.Client, check, http.StatusOK)
	wantStatus(t, r.Node, "http://127.0.0.1:32000", http.StatusOK)

	r.set(t, "clusterCIDR: "+lab.PodRange4)
	r.wantSource(t, "clusterCIDR without the client", false)
	r.set(t, "clusterCIDR: "+lab.OutsideRange4)
	r.wantSource(t, "clusterCIDR with the client", true)
	r.set(t, r.mode+": {masqueradeAll: true}")
	r.wantSource(t, "masqueradeAll", false)
	r.set(t)
	r.wantSource(t, "no masqueradeAll", true)
}

// changeChoice changes what nftables alone can do, or what is seen there.
func (r *reloaded) changeChoice(t *testing.T) {
	t.Helper()
	r.setOwn(t, "lbAlgorithm: maglev")
	eventually(t, func() string {
		pods := map[string]bool{}
		for range 12 {
			pods[r.ask(t, webVIP).Pod] = true
		}
		if len(pods) != 1 {
			return fmt.Sprintf("lbAlgorithm: maglev: one client reaches %v", pods)
		}
		return ""
	})
	const invalid = "ct state invalid"
	r.wantRules(t, invalid, false)
	r.setOwn(t, "dropInvalid: true")
	r.wantRules(t, invalid, true)
	r.setOwn(t)
	r.wantRules(t, invalid, false)
}

// changeNode changes what is no matter of rules.
func (r *reloaded) changeNode(t *testing.T) {
	t.Helper()
	r.set(t, "conntrack: {udpTimeout: 17s, tcpCloseWaitTimeout: 18s}")
	for name, want := range map[string]string{"nf_conntrack_udp_timeout": "17", "nf_conntrack_tcp_timeout_close_wait": "18"} {
		eventually(t, func() string {
			if got := r.read(t, "/proc/sys/net/netfilter/"+name); got != want {
				return fmt.Sprintf("%s is %s, want %s", name, got, want)
			}
			return ""
		})
	}
	r.set(t, "logging: {verbosity: 4}")
	r.waitFor(t, "logging.verbosity")
	if strings.Contains(r.log.String(), "level=DEBUG msg=applied") {
		t.Error("what developers want to know is logged unasked")
	}
	r.api.Set(webSlice(2, 3))
	r.waitFor(t, "level=DEBUG msg=applied")
}

// Counters of connections are added to rules that are in use, and taken away again.
func TestServiceCountersComeAndGo(t *testing.T) {
	t.Parallel()
	r := startReloaded(t, "nftables")
	count := func() (float64, bool) {
		return value(r.scrape(t), "vmapd_service_connections_total", "service=web", "port=tcp", "protocol=TCP", "ip_family=IPv4", "outcome=forwarded")
	}
	if n, ok := count(); ok {
		t.Errorf("without counters, there are %v connections", n)
	}
	r.setOwn(t, "serviceCounters: true")
	wantCount := func(want float64) {
		t.Helper()
		eventually(t, func() string {
			if n, ok := count(); n != want || !ok {
				return fmt.Sprintf("%v connections were counted (%v), want %v", n, ok, want)
			}
			return ""
		})
	}
	wantCount(0)
	const first, more = 25, 5
	for range first {
		r.ask(t, webVIP)
	}
	wantCount(first)
	// Endpoints that change don't begin anew.
	r.api.Set(webSlice(2, 3))
	r.wantRules(t, ": 10.0.0.4 . 8080", false)
	for range more {
		r.ask(t, webNodePort)
	}
	wantCount(first + more)
	r.setOwn(t)
	eventually(t, func() string {
		if n, ok := count(); ok {
			return fmt.Sprintf("%v connections are counted after counters were switched off", n)
		}
		return ""
	})
	r.ask(t, webVIP)
	r.mustStay(t)
}

// A connection to an endpoint that is gone ends when that is configured, and not before.
func TestConnectionGraceChangesInPlace(t *testing.T) {
	t.Parallel()
	r := startReloaded(t, "nftables")
	conn, err := r.Client.Dial(t.Context(), "tcp", webVIP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	a, err := conn.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	others := map[string][]byte{"pod-1": {3, 4}, "pod-2": {2, 4}, "pod-3": {2, 3}}[a.Pod]
	r.api.Set(webSlice(others...))
	pod := map[string]string{"pod-1": "10.0.0.2", "pod-2": "10.0.0.3", "pod-3": "10.0.0.4"}[a.Pod]
	r.wantRules(t, ": "+pod+" . 8080", false)
	if _, err := conn.Ask(t.Context()); err != nil {
		t.Fatalf("without connectionGrace, a connection to an endpoint that is gone ended: %v", err)
	}
	r.setOwn(t, "connectionGrace: 1s")
	eventually(t, func() string {
		if _, err := conn.Ask(t.Context()); err != nil {
			return ""
		}
		return "connectionGrace: 1s: a connection to an endpoint that is gone goes on"
	})
	r.mustStay(t)
}

// The two ports move, and answer differently, without a restart.
func TestPortsChangeInPlace(t *testing.T) {
	t.Parallel()
	r := startReloaded(t, "nftables")
	wantStatus(t, r.Node, metricsURL+"/debug/pprof/", http.StatusNotFound)
	r.set(t, "enableProfiling: true")
	wantStatus(t, r.Node, metricsURL+"/debug/pprof/", http.StatusOK)
	r.set(t, "metricsBindAddress: 127.0.0.1:20249", "healthzBindAddress: 0.0.0.0:20256")
	wantStatus(t, r.Node, "http://127.0.0.1:20249/metrics", http.StatusOK)
	wantStatus(t, r.Client, "http://"+lab.NodeIP4+":20256/healthz", http.StatusOK)
	for _, url := range []string{metricsURL + "/metrics", healthURL + "/healthz"} {
		eventually(t, func() string {
			if got := get(r.Node, nil, url); got.err == nil {
				return fmt.Sprintf("%s still answers %v", url, got)
			}
			return ""
		})
	}
	cert, key, trust := selfSigned(t, netip.MustParseAddr("127.0.0.1").AsSlice())
	r.setOwn(t, "metricsTLS: {certFile: "+cert+", keyFile: "+key+"}")
	eventually(t, func() string {
		if got := get(r.Node, trust, "https://127.0.0.1:20249/proxyMode"); got.body != "nftables" {
			return fmt.Sprintf("metricsTLS: %v", got)
		}
		return ""
	})
	// A certificate that is not there changes nothing, nor does what else changed with it.
	r.now["config.conf"] = r.config("mode: nftables", "healthzBindAddress: 0.0.0.0:30256")
	r.setOwn(t, "metricsTLS: {certFile: "+cert+".none, keyFile: "+key+"}")
	r.waitFor(t, "invalid configuration; keeping the previous one")
	wantStatus(t, r.Client, "http://"+lab.NodeIP4+":20256/healthz", http.StatusOK)
	if got := get(r.Client, nil, "http://"+lab.NodeIP4+":30256/healthz"); got.err == nil {
		t.Errorf("a part of a configuration that can't be used is in force: %v", got)
	}
	r.mustStay(t)
}

// A file that is broken is told of once, and changes nothing.
func TestABrokenFileIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := startReloaded(t, "nftables")
	before := r.ruleset(t)
	reload := func() float64 {
		v, _ := value(r.scrape(t), "vmapd_config_last_reload_successful")
		return v
	}
	if reload() != 1 {
		t.Error("the first configuration counts as none")
	}
	for range 3 {
		r.set(t, "nodePortAddresses: [all]", "clusterCIDR: 10.0.0.0/40")
		time.Sleep(300 * time.Millisecond) // longer than the file must be quiet
	}
	said := r.files.path("config.conf") + ": clusterCIDR: Invalid value"
	r.waitFor(t, said)
	if n := strings.Count(r.log.String(), said); n != 1 {
		t.Errorf("what is wrong is said %d times", n)
	}
	if diff := cmp.Diff(before, r.ruleset(t)); diff != "" {
		t.Errorf("a broken file changed the rules (-before +after):\n%s", diff)
	}
	if reload() != 0 {
		t.Error("vmapd_config_last_reload_successful is not 0")
	}
	r.set(t, "nodePortAddresses: [all]")
	r.waitFor(t, `msg="configuration changed" fields=nodePortAddresses`)
	eventually(t, func() string {
		if reload() != 1 {
			return "vmapd_config_last_reload_successful is not 1"
		}
		return ""
	})
	r.mustStay(t)
}

// What only a start can apply ends the process, so that whoever supervises it starts it
// again, and the rules stay.
func TestWhatTakesANewStartEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ line, said string }{
		"mode":             {"mode: iptables", "mode"},
		"hostnameOverride": {"mode: nftables\nhostnameOverride: node-2", "hostnameOverride"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			// One file that is replaced, as configuration management does it.
			path := filepath.Join(t.TempDir(), "config.conf")
			write := func(line string) {
				t.Helper()
				if err := os.WriteFile(path+".new", []byte(c.config(line)), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(path+".new", path); err != nil {
					t.Fatal(err)
				}
			}
			write("mode: nftables\nhostnameOverride: " + lab.NodeName)
			p := c.start(t, "--config", path)
			p.waitFor(t, "msg=ready")
			before := c.ruleset(t)
			line := test.line
			if name == "mode" {
				line += "\nhostnameOverride: " + lab.NodeName
			}
			write(line)
			if code := p.exit(t); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
			want := `level=ERROR msg="exiting because of an error" err="the configuration changed in ` + test.said + `, which needs a new start"`
			if _, got, _ := strings.Cut(lines[len(lines)-1], " "); got != want {
				t.Errorf("the last line without its time (-want +got):\n%s", cmp.Diff(want, got))
			}
			if diff := cmp.Diff(before, c.ruleset(t)); diff != "" {
				t.Errorf("the end changed the rules (-before +after):\n%s", diff)
			}
			c.ask(t, webVIP)
		})
	}
}

// What kube-proxy ends for is applied in place: the node's addresses, its pods' ranges, its
// zone.
func TestNodeChangesInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.addSecondNodeIP(t)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName, "--detect-local-mode", "NodeCIDR")
	p.waitFor(t, "msg=ready")
	c.underLoad(t)

	n := node()
	change := func(change func()) { change(); c.api.Set(n) }
	second := netip.MustParseAddrPort(secondNodeIP + ":30080")
	if _, err := c.Client.Ask(t.Context(), "tcp", second); err == nil {
		t.Fatal("node ports answer on another address than the primary one")
	}
	change(func() { n.Spec.PodCIDRs = []string{lab.OutsideRange4} })
	c.wantSource(t, "the client is in podCIDRs", true)
	change(func() { n.Spec.PodCIDRs = []string{lab.PodRange4} })
	c.wantSource(t, "the client is not in podCIDRs", false)

	slice := webSlice(2, 3)
	slice.Endpoints[0].Hints = zoneHint("a")
	slice.Endpoints[1].Hints = zoneHint("b")
	c.api.Set(slice)
	for zone, pod := range map[string]string{"a": "pod-1", "b": "pod-2"} {
		change(func() { n.Labels = map[string]string{corev1.LabelTopologyZone: zone} })
		eventually(t, func() string {
			pods := map[string]bool{}
			for range 10 {
				pods[c.ask(t, webVIP).Pod] = true
			}
			if len(pods) != 1 || !pods[pod] {
				return fmt.Sprintf("zone %s: %v answer", zone, pods)
			}
			return ""
		})
	}
	p.mustStay(t)
}

// The primary address of the node is another one.
func TestNodeAddressChangesInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.addSecondNodeIP(t)
	p := c.start(t, "--kubeconfig", c.kubeconfig(), "--hostname-override", lab.NodeName)
	p.waitFor(t, "msg=ready")
	c.ask(t, webNodePort)
	n := node()
	n.Status.Addresses[0].Address = secondNodeIP
	c.api.Set(n)
	c.wantAnswer(t, "the new address", netip.MustParseAddrPort(secondNodeIP+":30080"))
	eventually(t, func() string {
		if a, err := c.Client.Ask(t.Context(), "tcp", webNodePort); err == nil {
			return fmt.Sprintf("the address of before answers: %v", a)
		}
		return ""
	})
	// Without its Node, kube-proxy ends. Services go on here, whatever is not known.
	c.api.Delete(n)
	c.api.Set(webSlice(3))
	eventually(t, func() string {
		if a := c.ask(t, webVIP); a.Pod != "pod-2" {
			return "without a Node, changes are not programmed: " + a.Pod + " answers"
		}
		return ""
	})
	c.api.Set(n)
	c.wantAnswer(t, "the Node is back", netip.MustParseAddrPort(secondNodeIP+":30080"))
	if asked := c.api.Requests(apitest.Nodes); len(asked) > 4 {
		t.Errorf("%d requests for one Node", len(asked))
	}
	p.mustStay(t)
}

func zoneHint(zone string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
}
