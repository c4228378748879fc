package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight/tablesim"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// connect returns a client of the cluster, or nil with manifests.
func (p *preflighter) connect() (*client.Client, error) {
	if !p.live {
		return nil, nil
	}
	conn := informer.Config{Kubeconfig: p.kubeconfig, Master: p.master}
	if p.kubeconfig == "" && p.master == "" && p.ConfigFile != "" {
		conf, err := config.Load(&p.Flags)
		if err != nil {
			return nil, err
		}
		conn = conf.Client()
	}
	c, err := informer.Connect(conn)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster (without one, use --filename PATH): %w", err)
	}
	return c, nil
}

// configure returns vmapd's configuration: that of --config or kube-proxy's own. The report gets
// what the daemon would log about it and, with both, the fields in which they differ.
func (p *preflighter) configure(ctx context.Context, cluster *client.Client, in *preflight.Input, stderr io.Writer) (*config.Config, error) {
	text, place := p.kubeProxyConfig(ctx, cluster, in, stderr)
	if p.kubeProxyFile != "" {
		data, err := os.ReadFile(p.kubeProxyFile)
		if err != nil {
			return nil, fmt.Errorf("--kube-proxy-config: %w", err)
		}
		text, place = string(data), p.kubeProxyFile
	}
	var theirs *config.Config
	if text != "" {
		var err error
		if theirs, err = p.loadText(text, place); err != nil {
			return nil, err
		}
		in.Mode = string(theirs.KubeProxy().Mode)
	}
	if p.ConfigFile == "" && theirs != nil {
		in.Settings = append(in.Settings, notes(theirs)...)
		return theirs, nil
	}
	ours, err := config.Load(&p.Flags)
	if err != nil {
		return nil, err
	}
	in.Settings = append(in.Settings, notes(ours)...)
	switch {
	case theirs != nil:
		in.Settings = append(in.Settings, config.Differences(theirs, ours)...)
	case p.ConfigFile == "":
		in.Settings = append(in.Settings, "kube-proxy's configuration is not known (--kube-proxy-config): vmapd is compared with its defaults and the flags given")
	default:
		in.Mode = string(ours.KubeProxy().Mode)
	}
	return ours, nil
}

func notes(c *config.Config) (list []string) {
	for _, n := range c.Notes {
		list = append(list, n.Text)
	}
	return list
}

// loadText loads a configuration of kube-proxy's that is no file. Messages name its place.
func (p *preflighter) loadText(text, place string) (*config.Config, error) {
	dir, err := os.MkdirTemp("", "vmapd-preflight-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "config.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	flags := p.Flags
	flags.ConfigFile = path
	c, err := config.Load(&flags)
	if err != nil {
		return nil, fmt.Errorf("kube-proxy's configuration: %s", strings.ReplaceAll(err.Error(), path, place))
	}
	for i := range c.Notes {
		c.Notes[i].Text = strings.ReplaceAll(c.Notes[i].Text, path, place)
	}
	return c, nil
}

// kubeProxyConfig returns the configuration in kube-proxy's ConfigMap or, without it, that of the
// kube-proxy that runs on this node.
func (p *preflighter) kubeProxyConfig(ctx context.Context, cluster *client.Client, in *preflight.Input, stderr io.Writer) (text, place string) {
	if p.kubeProxyFile != "" {
		return "", ""
	}
	if cluster != nil {
		data, err := cluster.ConfigMap(ctx, metav1.NamespaceSystem, "kube-proxy")
		if text := data["config.conf"]; text != "" {
			return text, "ConfigMap kube-proxy"
		}
		if err != nil {
			fmt.Fprintf(stderr, "read the ConfigMap kube-system/kube-proxy: %v; continuing without it\n", err)
		}
	}
	if !p.fromNode() || p.ConfigFile != "" {
		return "", ""
	}
	text, err := configz(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "ask kube-proxy for its configuration: %v; continuing without it\n", err)
		return "", ""
	}
	in.Settings = append(in.Settings, "mode: kube-proxy reports the one in which it runs; if its file has an empty one, vmapd would use nftables (--kube-proxy-config)")
	return text, "configz of kube-proxy"
}

// metricsAddress is where kube-proxy answers, by default.
const metricsAddress = "127.0.0.1:10249"

const configzURL = "http://" + metricsAddress + "/configz"

// configz returns the effective configuration of the kube-proxy that runs on this node. Versions
// that do not report it in the form of a file are an error.
func configz(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, configzURL, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var all map[string]json.RawMessage
	const most = 1 << 20
	if err := json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(&all); err != nil {
		return "", fmt.Errorf("%s: %s: %w", configzURL, answer.Status, err)
	}
	text := all["kubeproxy.config.k8s.io"]
	var kind struct{ Kind string }
	if err := json.Unmarshal(text, &kind); err != nil || kind.Kind == "" {
		return "", fmt.Errorf("%s: it has no configuration of kube-proxy in the form of a file", configzURL)
	}
	return string(text), nil
}

// readObjects reads the objects of the cluster, or of manifests.
func (p *preflighter) readObjects(ctx context.Context, cluster *client.Client, in *preflight.Input, stderr io.Writer) error {
	if cluster == nil {
		objects, errs, err := manifest.Load(p.paths)
		if err != nil {
			return err
		}
		warnUnread(stderr, objects)
		for _, e := range errs {
			fmt.Fprintln(stderr, e)
		}
		if len(errs) > 0 && objects.Len() == 0 {
			return exitError(1) // nothing could be read, and the errors were printed
		}
		o := &in.Objects
		o.Services, o.EndpointSlices = manifest.Of[model.Service](objects), manifest.Of[model.EndpointSlice](objects)
		o.Nodes, o.ServiceCIDRs = manifest.Of[model.Node](objects), manifest.Of[model.ServiceCIDR](objects)
	}
	var err error
	if in.Config.NodeName == "" {
		if in.Config.NodeName, err = onlyNodeName(in.Objects.Nodes); err != nil {
			return err
		}
	}
	if cluster == nil {
		return nil
	}
	services, err := cluster.Services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		in.Objects.Services = append(in.Objects.Services, kube.Service(&services.Items[i]))
	}
	slices, err := cluster.EndpointSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range slices.Items {
		in.Objects.EndpointSlices = append(in.Objects.EndpointSlices, kube.EndpointSlice(&slices.Items[i]))
	}
	var w known
	c := clusterReader{cluster, &w}
	if err := c.nodes(ctx, in.Config.NodeName, stderr); err != nil {
		return err
	}
	if err := c.serviceCIDRs(ctx, stderr); err != nil {
		return err
	}
	in.Objects.Nodes, in.Objects.ServiceCIDRs = w.Nodes, w.serviceCIDRs
	return nil
}

// hostAddresses returns the addresses of this node, without those of Services.
func hostAddresses() ([]netip.Addr, error) {
	return hostaddr.List([]string{ipvs.DefaultDevice, host.KubeProxyDevice, userspace.DeviceName})
}

func (p *preflighter) readNFTFile(in *preflight.Input) error {
	text, err := os.ReadFile(p.nft)
	if err != nil {
		return fmt.Errorf("--nft: %w", err)
	}
	for _, f := range model.Families {
		if in.Before[f], err = preflight.ReadNFT(f, string(text)); err != nil {
			return fmt.Errorf("--nft: %s: %w", p.nft, err)
		}
	}
	return nil
}

func (p *preflighter) readSavedFiles(in *preflight.Input) error {
	for f, file := range map[model.Family][2]string{
		model.IPv4: {"--iptables-save", p.iptablesSave}, model.IPv6: {"--ip6tables-save", p.ip6tablesSave},
	} {
		if file[1] == "" {
			continue
		}
		text, err := os.ReadFile(file[1])
		if err == nil {
			in.Before[f], err = preflight.ReadIPTables(f, string(text))
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", file[0], file[1], err)
		}
	}
	return nil
}

// readNodeRules reads the rules of this node, for each family those of the mode that has some.
func readNodeRules(ctx context.Context, in *preflight.Input) error {
	for _, f := range model.Families {
		table, err := tablesim.ReadTable(f, preflight.Table)
		if err != nil {
			return fmt.Errorf("read kube-proxy's rules for %v: %w", f, err)
		}
		if table != nil {
			in.Before[f] = preflight.OfTable(table)
			continue
		}
		text, err := host.SavedWith(ctx, f, "KUBE-SERVICES")
		if err == nil && text != "" {
			in.Before[f], err = preflight.ReadIPTables(f, text)
		}
		if err != nil && !host.LacksProgram(err) {
			return fmt.Errorf("read kube-proxy's rules for %v: %w", f, err)
		}
	}
	return nil
}
