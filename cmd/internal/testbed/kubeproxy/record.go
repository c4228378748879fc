package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// addresses are those of the node. The last ones are of a bridge, as of Docker.
var addresses = []string{"192.168.0.2/24", "fd00:192:168::2/64", "172.17.0.1/16", "fd00:172:17::1/64"}

// recording is one run of kube-proxy.
type recording struct {
	program, version, mode, cluster string

	ns     *lab.Namespace
	server *apitest.Server
	folder string // for its files
}

// run writes the rules into a folder, in files with the name of the cluster.
func (r *recording) run(ctx context.Context, out string) (err error) {
	if r.folder, err = os.MkdirTemp("", "vmapd-kube-proxy-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	proxy := r.ns.Command(ctx, r.program, "--config="+filepath.Join(r.folder, "config.conf"))
	var log bytes.Buffer
	proxy.Stdout, proxy.Stderr = &log, &log
	if err := proxy.Start(); err != nil {
		return err
	}
	listings, err := r.settled(ctx)
	_ = proxy.Cancel()
	_ = proxy.Wait()
	if err != nil {
		return fmt.Errorf("%w; its log:\n%s", err, log.String())
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for suffix, text := range listings {
		if err := os.WriteFile(filepath.Join(out, filepath.Base(r.cluster)+suffix), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *recording) close() error {
	errs := []error{os.RemoveAll(r.folder)}
	if r.server != nil {
		r.server.Close()
	}
	if r.ns != nil {
		errs = append(errs, r.ns.Close())
	}
	return errors.Join(errs...)
}

// prepare makes the node, the rules of others, the API server and the files.
func (r *recording) prepare(ctx context.Context) (err error) {
	if r.ns, err = lab.NewNamespace("node"); err != nil {
		return err
	}
	for _, a := range addresses {
		if err := r.ns.AddAddr("lo", netip.MustParsePrefix(a)); err != nil {
			return err
		}
	}
	if err := r.firewall(ctx); err != nil {
		return err
	}
	err = r.ns.Do(func() error {
		r.server, err = apitest.NewServer(apitest.Options{JSONOnly: true})
		return err
	})
	if err != nil {
		return err
	}
	objects, err := os.ReadFile(filepath.Join(r.cluster, "objects.yaml"))
	if err != nil {
		return err
	}
	for i, document := range strings.Split(string(objects), "\n---\n") {
		obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(document))
		if err != nil {
			return fmt.Errorf("objects.yaml: object %d: %w", i+1, err)
		}
		r.server.Set(obj)
	}
	kubeconfig, err := r.server.Kubeconfig(r.folder, apitest.Form{})
	if err != nil {
		return err
	}
	return r.configure(kubeconfig)
}

// firewall restores the rules of others, in mode iptables.
func (r *recording) firewall(ctx context.Context) error {
	rules, err := os.ReadFile(filepath.Join(r.cluster, "firewall.rules"))
	if err != nil || r.mode != "iptables" {
		return err
	}
	cmd := r.ns.Command(ctx, "iptables-restore")
	cmd.Stdin = bytes.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("firewall.rules: %w: %s", err, out)
	}
	return nil
}

// configure writes the cluster's configuration with what this run needs. A network namespace can't
// change the limit of connections, which is the host's.
func (r *recording) configure(kubeconfig string) error {
	data, err := os.ReadFile(filepath.Join(r.cluster, "config.conf"))
	if err != nil {
		return err
	}
	conf := map[string]any{}
	if err := yaml.Unmarshal(data, &conf); err != nil {
		return fmt.Errorf("config.conf: %w", err)
	}
	conf["mode"], conf["hostnameOverride"] = r.mode, "node-1"
	conf["clientConnection"] = map[string]any{"kubeconfig": kubeconfig}
	conntrack, _ := conf["conntrack"].(map[string]any)
	if conntrack == nil {
		conntrack = map[string]any{}
	}
	for _, field := range []string{"maxPerCore", "min"} {
		conntrack[field] = 0
	}
	conf["conntrack"] = conntrack
	if r.mode == "nftables" && strings.HasPrefix(r.version, "1.30.") {
		conf["featureGates"] = map[string]any{"NFTablesProxyMode": true}
	}
	if data, err = yaml.Marshal(conf); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.folder, "config.conf"), data, 0o600)
}

// settled returns the listings by the ends of their files' names, once they have rules and no longer change.
func (r *recording) settled(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	commands := map[string][]string{
		".ipv4.nft": {"nft", "list", "table", "ip", "kube-proxy"},
		".ipv6.nft": {"nft", "list", "table", "ip6", "kube-proxy"},
	}
	sign := "service-"
	if r.mode == "iptables" {
		commands = map[string][]string{".ipv4.rules": {"iptables-save"}, ".ipv6.rules": {"ip6tables-save"}}
		sign = "KUBE-SVC-"
	}
	var last map[string]string
	for {
		now, err := map[string]string{}, error(nil)
		for suffix, command := range commands {
			var out []byte
			if out, err = r.ns.Command(ctx, command[0], command[1:]...).Output(); err != nil || !bytes.Contains(out, []byte(sign)) {
				break
			}
			now[suffix] = plain(string(out))
		}
		if len(now) == len(commands) && same(now, last) {
			return now, nil
		}
		last = now
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no rules that last: %w", errors.Join(err, ctx.Err()))
		case <-time.After(2 * time.Second):
		}
	}
}

func same(a, b map[string]string) bool {
	for suffix, text := range a {
		if b[suffix] != text {
			return false
		}
	}
	return true
}

var counters = regexp.MustCompile(`\[\d+:\d+\]`)

// plain removes comments and counters, which differ from run to run.
func plain(listing string) string {
	var b strings.Builder
	for line := range strings.Lines(listing) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(counters.ReplaceAllString(line, "[0:0]"))
		}
	}
	return b.String()
}
