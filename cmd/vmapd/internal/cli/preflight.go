package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/sync/kube/client"
)

const exitDifferent = 2

type preflighter struct {
	NodeFlags
	version string // kube-proxy's
	output  report.Format
}

func newPreflightCommand() *cobra.Command {
	var p preflighter
	c := &cobra.Command{
		Use:   "preflight {-f PATH | --kubeconfig FILE} [flags] [-- KUBE-PROXY-FLAG...]",
		Short: "List what changes without kube-proxy",
		Long:  docs.Help("preflight"),
		RunE:  p.run,
	}
	f := c.Flags()
	p.addFlags(f, "name of the Node (default: the only Node, or the one with the host's name)", "backend")
	p.addKubeconfig(f)
	f.Lookup("config").Usage = "kube-proxy's configuration file (default: with --kubeconfig, its ConfigMap)"
	f.StringVar(&p.version, "kube-proxy-version", "",
		"kube-proxy's version, as 1.36 (default: with --kubeconfig, the API server's)")
	report.AddFormat(f, &p.output)
	return c
}

func (p *preflighter) run(cmd *cobra.Command, proxyFlags []string) error {
	switch {
	case len(proxyFlags) > 0 && cmd.ArgsLenAtDash() != 0:
		return fmt.Errorf("unexpected argument %q (kube-proxy's flags follow --)", proxyFlags[0])
	case !p.hasObjects():
		return missing("objects: manifests (-f PATH) or a cluster (--kubeconfig FILE)")
	case p.ConfigFile != "" && len(proxyFlags) > 0:
		return errors.New("give either --config or kube-proxy's flags: with --config, it ignores them")
	case p.kubeconfig == "" && p.ConfigFile == "" && len(proxyFlags) == 0:
		return missing("kube-proxy's configuration: its file (--config), or its flags after --")
	}
	in, err := p.input(cmd.Context(), proxyFlags)
	if err != nil {
		return err
	}
	if in.Objects, err = p.read(cmd.Context(), nil, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if in.Node, err = config.OnlyNode(in.Model().NodeName, in.Objects.Nodes); err != nil {
		return err
	}
	if _, err := in.Objects.Node(in.Node); err != nil {
		return fmt.Errorf("--node-name: %w", err)
	}
	r := preflight.Compare(in)
	if err := report.Print(cmd.OutOrStdout(), p.output, r, r.Write); err != nil {
		return err
	}
	switch {
	case p.incomplete:
		return exitError(1) // the errors were printed
	case len(r.Differences) > 0:
		return exitError(exitDifferent)
	}
	return nil
}

// input reads the two configurations, and kube-proxy's version.
func (p *preflighter) input(ctx context.Context, proxyFlags []string) (in preflight.Input, err error) {
	var cluster *client.Client
	if p.kubeconfig != "" {
		if cluster, err = p.connect(); err != nil {
			return in, err
		}
	}
	if cluster != nil && p.ConfigFile == "" && len(proxyFlags) == 0 {
		data, err := cluster.ConfigMap(ctx, metav1.NamespaceSystem, "kube-proxy")
		if err == nil && data["config.conf"] == "" {
			err = errors.New("it has no config.conf")
		}
		if err != nil {
			const without = "without it: --config FILE, or kube-proxy's flags after --"
			return in, fmt.Errorf("read the ConfigMap kube-system/kube-proxy: %w (%s)", err, without)
		}
		p.ConfigFile, p.ConfigText = "config.conf", data["config.conf"]
	}
	if err := p.Parse(proxyFlags); err != nil {
		return in, fmt.Errorf("kube-proxy's flags: %w", err)
	}
	c, err := config.Load(&p.Flags)
	if err != nil {
		return in, err
	}
	in = preflight.Input{
		Config:    c,
		ProxyFile: filepath.Base(cmp.Or(p.ConfigFile, "config.conf")),
		OwnFile:   filepath.Base(cmp.Or(p.OwnConfigFile, "vmapd.yaml")),
	}
	in.Version, err = p.minorVersion(ctx, cluster)
	return in, err
}

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
		return 0, fmt.Errorf("--kube-proxy-version: %q is not a version of Kubernetes, such as 1.36", text)
	}
	return int(v.Minor()), nil
}
