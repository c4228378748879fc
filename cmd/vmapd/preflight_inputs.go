package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// input reads everything. It is not complete if an object could not be read.
func (p *preflighter) input(ctx context.Context, stderr io.Writer) (in preflight.Input, complete bool, err error) {
	var cluster *client.Client
	if p.live {
		if cluster, err = informer.Connect(informer.Config{Kubeconfig: p.kubeconfig}); err != nil {
			return in, false, fmt.Errorf("connect to the cluster (without one, use --filename PATH): %w", err)
		}
	}
	c, err := p.configuration(ctx, cluster)
	if err != nil {
		return in, false, err
	}
	in = preflight.Input{
		KubeProxy: c.KubeProxy(), Config: c.Model(), Backend: string(c.Backend),
		ProxyFile: filepath.Base(cmp.Or(p.configFile, "config.conf")),
		OwnFile:   filepath.Base(cmp.Or(p.ownFile, "vmapd.yaml")),
	}
	if c.Backend == config.Auto {
		in.Backend = string(config.NFTables)
	}
	for _, n := range c.Notes {
		in.Notes = append(in.Notes, n.Text)
	}
	if in.Version, err = p.minorVersion(ctx, cluster); err != nil {
		return in, false, err
	}
	if cluster != nil {
		complete, err = true, fromCluster(ctx, cluster, &in)
	} else {
		complete, err = p.fromFiles(&in, stderr)
	}
	if err != nil {
		return in, false, err
	}
	in.Config.NodeName, err = chooseNode(cmp.Or(p.nodeName, in.Config.NodeName), in.Nodes)
	return in, complete, err
}

// configuration returns that of a vmapd with kube-proxy's configuration.
func (p *preflighter) configuration(ctx context.Context, cluster *client.Client) (*config.Config, error) {
	flags := slices.Clone(p.proxyFlags)
	for name, value := range map[string]string{"config": p.configFile, "vmapd-config": p.ownFile, "backend": p.backend} {
		if value != "" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	if cluster == nil || p.configFile != "" || len(p.proxyFlags) > 0 {
		return loadConfig(flags)
	}
	const place = "ConfigMap kube-system/kube-proxy"
	data, err := cluster.ConfigMap(ctx, metav1.NamespaceSystem, "kube-proxy")
	if err == nil && data["config.conf"] == "" {
		err = errors.New("it has no config.conf")
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w (without it: --config FILE, or kube-proxy's flags behind --)", place, err)
	}
	dir, err := os.MkdirTemp("", "vmapd-preflight-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "config.conf")
	if err := os.WriteFile(path, []byte(data["config.conf"]), 0o600); err != nil {
		return nil, err
	}
	c, err := loadConfig(append(flags, "--config="+path))
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), path, place))
	}
	for i := range c.Notes {
		c.Notes[i].Text = strings.ReplaceAll(c.Notes[i].Text, path, place)
	}
	return c, nil
}

// loadConfig returns the configuration of a daemon with these flags.
func loadConfig(flags []string) (*config.Config, error) {
	var f config.Flags
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	set.Usage = func() {}
	f.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		return nil, fmt.Errorf("kube-proxy's flags: %w", err)
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("kube-proxy's flags: %q is no flag", set.Arg(0))
	}
	return config.Load(&f)
}

// minorVersion returns that of kube-proxy, or 0 if it is not known.
func (p *preflighter) minorVersion(ctx context.Context, cluster *client.Client) (int, error) {
	text := p.version
	if text == "" && cluster != nil {
		text, _ = cluster.Version(ctx) // without it, differences of each version are listed
	}
	if text == "" {
		return 0, nil
	}
	v, err := utilversion.ParseGeneric(text)
	if err != nil || v.Major() != 1 {
		return 0, fmt.Errorf("--kube-proxy-version: %q is no version of Kubernetes, such as 1.36", text)
	}
	return int(v.Minor()), nil
}

func (p *preflighter) fromFiles(in *preflight.Input, stderr io.Writer) (complete bool, err error) {
	objects, errs, err := manifest.Load(p.paths)
	if err != nil {
		return false, err
	}
	warnUnread(stderr, objects)
	for _, e := range errs {
		fmt.Fprintln(stderr, e)
	}
	in.Nodes, in.ServiceCIDRs = manifest.Of[model.Node](objects), manifest.Of[model.ServiceCIDR](objects)
	in.Services, in.EndpointSlices = manifest.Of[model.Service](objects), manifest.Of[model.EndpointSlice](objects)
	return len(errs) == 0, nil
}

func fromCluster(ctx context.Context, cluster *client.Client, in *preflight.Input) error {
	services, err1 := cluster.Services().List(ctx, metav1.ListOptions{})
	endpoints, err2 := cluster.EndpointSlices().List(ctx, metav1.ListOptions{})
	nodes, err3 := cluster.Nodes().List(ctx, metav1.ListOptions{})
	ranges, err4 := cluster.ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err4) { // clusters before 1.33 have none (KEP-1880)
		err4 = nil
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return fmt.Errorf("list the objects of the cluster: %w", err)
	}
	in.Nodes, in.ServiceCIDRs = converted(nodes.Items, kube.Node), converted(ranges.Items, kube.ServiceCIDR)
	in.Services = converted(services.Items, kube.Service)
	in.EndpointSlices = converted(endpoints.Items, kube.EndpointSlice)
	return nil
}

func converted[T, M any](items []T, convert func(*T) M) []M {
	list := make([]M, 0, len(items))
	for i := range items {
		list = append(list, convert(&items[i]))
	}
	return list
}

// chooseNode returns the name of a Node that there is: the one asked for, the only one, or the host's.
func chooseNode(name string, nodes []model.Node) (string, error) {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	host, _ := config.HostNodeName()
	if name == "" && len(all) == 1 {
		name = all[0]
	}
	name = strings.ToLower(cmp.Or(name, host))
	switch {
	case len(all) == 0:
		return "", errors.New("there is no Node (see kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml)")
	case slices.Contains(all, name):
		return name, nil
	}
	return "", fmt.Errorf("--node-name: there is no Node %q%s", name, names.Instead(name, all))
}
