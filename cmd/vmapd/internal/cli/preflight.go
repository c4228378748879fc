package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/sync/kube/client"
)

const preflightLong = `Preflight lists what changes on a node when vmapd replaces kube-proxy: each known
difference, the Services that it concerns, and the setting that keeps it as it was. It
changes nothing, and does not examine the kernel.

kube-proxy's configuration is in the file of --config, with --kubeconfig in its ConfigMap,
or in its flags, after --.

  vmapd preflight --kubeconfig FILE --node-name NODE
  vmapd preflight -f cluster.yaml --node-name NODE --config config.conf
  vmapd preflight -f cluster.yaml --node-name NODE -- --proxy-mode=ipvs --v=2

Exit codes: 0 if nothing changes (notes are allowed), 2 if there are differences,
and 1 after an error, also if an object could not be read.`

const exitDifferent = 2

type preflighter struct {
	NodeFlags
	proxyFlags []string // kube-proxy's
	version    string
	output     report.Format
}

func newPreflightCommand() *cobra.Command {
	var p preflighter
	c := &cobra.Command{
		Use:   "preflight {-f PATH | --kubeconfig FILE} [flags] [-- KUBE-PROXY-FLAG...]",
		Short: "List what changes without kube-proxy",
		Long:  preflightLong,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q (kube-proxy's flags follow --)", args[0])
			}
			p.proxyFlags = args
			return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
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

func (p *preflighter) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case !p.hasObjects():
		return missing("objects: manifests (-f PATH) or a cluster (--kubeconfig FILE)")
	case p.ConfigFile != "" && len(p.proxyFlags) > 0:
		return errors.New("give either --config or kube-proxy's flags: with --config, it ignores them")
	case p.kubeconfig == "" && p.ConfigFile == "" && len(p.proxyFlags) == 0:
		return missing("kube-proxy's configuration: its file (--config), or its flags after --")
	}
	in, complete, err := p.input(ctx, stderr)
	if err != nil {
		return err
	}
	r := preflight.Compare(in)
	if err := report.Print(stdout, p.output, r, r.Write); err != nil {
		return err
	}
	switch {
	case !complete:
		return exitError(1) // the errors were printed
	case len(r.Differences) > 0:
		return exitError(exitDifferent)
	}
	return nil
}

// input reads everything. It is not complete if an object could not be read.
func (p *preflighter) input(ctx context.Context, stderr io.Writer) (in preflight.Input, complete bool, err error) {
	var cluster *client.Client
	if p.kubeconfig != "" {
		if cluster, err = p.connect(); err != nil {
			return in, false, err
		}
	}
	c, err := p.configuration(ctx, cluster)
	if err != nil {
		return in, false, err
	}
	in = preflight.Input{
		KubeProxy: c.KubeProxy, Config: c.Model(), Backend: string(c.Backend),
		ProxyFile: filepath.Base(cmp.Or(p.ConfigFile, "config.conf")),
		OwnFile:   filepath.Base(cmp.Or(p.OwnConfigFile, "vmapd.yaml")),
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
	if in.Objects, complete, err = p.read(ctx, nil, stderr); err != nil {
		return in, false, err
	}
	given := strings.ToLower(cmp.Or(p.NodeName, in.Config.NodeName))
	if in.Config.NodeName, err = config.OnlyNode(given, in.Objects.Nodes); err != nil {
		return in, false, err
	}
	if _, err = in.Objects.Node(in.Config.NodeName); err != nil {
		err = fmt.Errorf("--node-name: %w", err)
	}
	return in, complete, err
}

func (p *preflighter) configuration(ctx context.Context, cluster *client.Client) (*config.Config, error) {
	if cluster != nil && p.ConfigFile == "" && len(p.proxyFlags) == 0 {
		data, err := cluster.ConfigMap(ctx, metav1.NamespaceSystem, "kube-proxy")
		if err == nil && data["config.conf"] == "" {
			err = errors.New("it has no config.conf")
		}
		if err != nil {
			const without = "without it: --config FILE, or kube-proxy's flags after --"
			return nil, fmt.Errorf("read the ConfigMap kube-system/kube-proxy: %w (%s)", err, without)
		}
		p.ConfigFile, p.ConfigText = "config.conf", data["config.conf"]
	}
	if err := p.Parse(p.proxyFlags); err != nil {
		return nil, fmt.Errorf("kube-proxy's flags: %w", err)
	}
	return config.Load(&p.Flags)
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
