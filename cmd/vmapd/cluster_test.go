package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Addresses are the repository's: pods 10.0.0.0/8, ClusterIPs 172.30.0.0/16, nodes
// 192.168.0.0/24, ours is .2, the client 203.0.113.9, and IPv6 twins.

// apiCluster is a world whose node reaches an API server, with the objects of the demo in it:
// the Service web has three pods.
type apiCluster struct {
	*lab.World
	api *apitest.Server
	dir string // has a kubeconfig
	// The test refuses something that the manifest grants, or grants something else.
	ownRules bool
}

// proxierRules are the permissions of system:node-proxier, which clusters give kube-proxy.
func proxierRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"services", "endpoints"}},
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		{Verbs: []string{"create", "patch", "update"}, APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}},
		{Verbs: []string{"list", "watch"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		{Verbs: []string{"list", "watch"}, APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}},
	}
}

// deployedRules are the permissions that the manifest for clusters gives vmapd.
func deployedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	return object[rbacv1.ClusterRole](t, readDeployed(t, "vmapd.yaml"), "ClusterRole vmapd").Rules
}

// startCluster makes a cluster that wants to know who asks, over TLS. Rules say what the proxy
// may do there. Without any, they are those of the manifest, and the test fails if something else is
// asked for.
func startCluster(t *testing.T, rules ...rbacv1.PolicyRule) *apiCluster {
	t.Helper()
	c := &apiCluster{World: newLab(t), dir: t.TempDir(), ownRules: len(rules) > 0}
	if !c.ownRules {
		rules = deployedRules(t)
	}
	err := c.Node.Do(func() (err error) {
		c.api, err = apitest.NewServer(apitest.Options{TLS: true, Authenticate: true, Rules: rules})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.api.Close)
	t.Cleanup(func() {
		if denied := c.api.Denied(); len(denied) > 0 && !c.ownRules {
			t.Errorf("the manifest's ClusterRole does not grant %v", denied)
		}
	})
	for _, file := range []string{"services.yaml", "endpoints.yaml"} {
		for _, o := range decode(t, filepath.Join(testdata(t), "demo/before", file)) {
			c.api.Set(o)
		}
	}
	c.api.Set(node())
	if _, err := c.api.Kubeconfig(c.dir, apitest.Form{Files: true}); err != nil {
		t.Fatal(err)
	}
	return c
}

// forbid takes all permissions away.
func (c *apiCluster) forbid() {
	c.ownRules = true
	c.api.SetRules([]rbacv1.PolicyRule{})
}

func (c *apiCluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// start starts vmapd on the node, and ends it with the test.
func (c *apiCluster) start(t *testing.T, args ...string) *process {
	t.Helper()
	return c.launch(t, "/proc/self/exe", append([]string{"vmapd"}, args...)...)
}

// launch starts a program that becomes vmapd. Args[0] is its name.
func (c *apiCluster) launch(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: c.Node.Command(context.WithoutCancel(t.Context()), path), log: &syncBuffer{}}
	p.cmd.Args, p.cmd.Stderr = args, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.endsWith(t, p)
	return p
}

// endsWith ends a process with the test, before the world that it is in.
func (c *apiCluster) endsWith(t *testing.T, p *process) {
	t.Helper()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			if code := p.exit(t); code != 0 {
				t.Errorf("asked to end, vmapd does so with exit code %d", code)
			}
		}
		if strings.Contains(p.log.String(), "DATA RACE") {
			t.Error("a data race in vmapd")
		}
		if t.Failed() {
			t.Logf("the log of vmapd:\n%s", p.log)
		}
	})
}

// exit waits for a process that ends by itself, and returns its exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	} else if ok {
		return exit.ExitCode()
	}
	return 0
}

func (p *process) pid() string { return strconv.Itoa(p.cmd.Process.Pid) }

// mustStay fails if a process has ended, or said that it starts again.
func (p *process) mustStay(t *testing.T) {
	t.Helper()
	if n := strings.Count(p.log.String(), "msg=started"); n != 1 || strings.Contains(p.log.String(), "msg=stopped") {
		t.Errorf("the process did not simply go on: it started %d times", n)
	}
}

// node is our Node.
func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: lab.NodeIP4}, {Type: corev1.NodeInternalIP, Address: lab.NodeIP6},
		}},
	}
}

// webSlice is the slice web-ipv4 with other endpoints, by the last byte of their addresses.
func webSlice(pods ...byte) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-ipv4", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
			{Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(8080))},
		},
	}
	for _, p := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{netip.AddrFrom4([4]byte{10, 0, 0, p}).String()}, NodeName: new(lab.NodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return s
}

// Where web is reached.
var (
	webVIP      = netip.MustParseAddrPort("172.30.0.10:80")
	webNodePort = netip.MustParseAddrPort(lab.NodeIP4 + ":30080")
	webVIP6     = netip.MustParseAddrPort("[fd00:172:30::10]:80")
)

// ask makes one connection from the client, which must be answered.
func (c *apiCluster) ask(t *testing.T, to netip.AddrPort) lab.Answer {
	t.Helper()
	a, err := c.Client.Ask(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// eventually waits until problem returns "", for a minute at most.
func eventually(t *testing.T, problem func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		p := problem()
		if p == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(p)
		}
	}
}

// page is an answer over HTTP.
type page struct {
	status int
	body   string
	header http.Header
	err    error
}

func (p page) String() string {
	if p.err != nil {
		return p.err.Error()
	}
	return fmt.Sprintf("%d: %.300s", p.status, p.body)
}

// get asks for a URL from a namespace. Headers are names and values in turn.
func get(ns *lab.Namespace, trust *tls.Config, url string, headers ...string) page {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: trust,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = ns.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return page{err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return page{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return page{status: response.StatusCode, body: string(body), header: response.Header, err: err}
}

// wantStatus waits until a URL answers with a status.
func wantStatus(t *testing.T, ns *lab.Namespace, url string, want int) page {
	t.Helper()
	var p page
	eventually(t, func() string {
		if p = get(ns, nil, url); p.status == want {
			return ""
		}
		return fmt.Sprintf("GET %s: %v; want %d", url, p, want)
	})
	return p
}

const (
	metricsURL = "http://127.0.0.1:10249"
	healthURL  = "http://" + lab.NodeIP4 + ":10256"
)

// scrape returns the metrics of the daemon on the node.
func (c *apiCluster) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	p := wantStatus(t, c.Node, metricsURL+"/metrics", http.StatusOK)
	parser := expfmt.NewTextParser(prom.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// value is that of the first series of a metric that has all of some labels, given as
// name=value; of a histogram, how much was observed. It is false if there is none.
func value(all map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
	for _, m := range all[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

// wantEvent waits for an event about an object with a text in its note, and returns it.
func (c *apiCluster) wantEvent(t *testing.T, reason, kind, name, note string) eventsv1.Event {
	t.Helper()
	var found eventsv1.Event
	eventually(t, func() string {
		all := c.api.Events()
		i := slices.IndexFunc(all, func(e eventsv1.Event) bool {
			return e.Reason == reason && e.Regarding.Kind == kind && e.Regarding.Name == name && strings.Contains(e.Note, note)
		})
		if i >= 0 {
			found = all[i]
			return ""
		}
		var text strings.Builder
		for _, e := range all {
			fmt.Fprintf(&text, "\n%s %s %s/%s: %s", e.Type, e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)
		}
		return fmt.Sprintf("no event %s about %s %s with %q; there are:%s", reason, kind, name, note, &text)
	})
	return found
}

// configMap is a volume as the kubelet mounts and updates it: files are links through
// ..data, which is replaced in one step (pkg/volume/util/atomic_writer.go).
type configMap struct {
	dir     string
	version int
}

func newConfigMap(t *testing.T, files map[string]string) *configMap {
	t.Helper()
	m := &configMap{dir: t.TempDir()}
	m.set(t, files)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *configMap) path(name string) string { return filepath.Join(m.dir, name) }

// set replaces all files at once.
func (m *configMap) set(t *testing.T, files map[string]string) {
	t.Helper()
	data := func(version int) string { return fmt.Sprintf("..2026_11_21_%d", version) }
	m.version++
	dir := m.path(data(m.version))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(data(m.version), m.path("..data_tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(m.path("..data_tmp"), m.path("..data")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.path(data(m.version - 1))); err != nil {
		t.Fatal(err)
	}
}

// ruleset is what nft lists of the node.
func (c *apiCluster) ruleset(t *testing.T) string {
	t.Helper()
	return list(t, c.Node)
}

// read reads a file as a process on the node sees it.
func (c *apiCluster) read(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	if err := c.Node.Do(func() (err error) { text, err = os.ReadFile(path); return err }); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// service is the Service of a name as the demo has it.
func (c *apiCluster) service(t *testing.T, name string) *corev1.Service {
	t.Helper()
	for _, o := range decode(t, filepath.Join(testdata(t), "demo/before/services.yaml")) {
		if s, ok := o.(*corev1.Service); ok && s.Name == name {
			return s
		}
	}
	t.Fatalf("the demo has no Service %s", name)
	return nil
}
