package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

const preflightLong = `Preflight lists what changes on a node when vmapd replaces kube-proxy: for each known
difference of kube-proxy's mode and version, the Services that it concerns and the
setting that keeps it as it was. It reads the configuration and the objects, and changes
nothing. What a kube-proxy has in the kernel of a node is not examined.

kube-proxy's configuration, which vmapd reads, too, is in the file of --config, with
--kubeconfig in its ConfigMap, or in its flags, after --.

  vmapd preflight --kubeconfig FILE --node-name NODE
  vmapd preflight -f cluster.yaml --node-name NODE --config config.conf
  vmapd preflight -f cluster.yaml --node-name NODE -- --proxy-mode=ipvs --v=2

Exit codes: 0 if nothing changes (notes are allowed), 2 if there are differences,
and 1 after an error, also if an object could not be read.`

// exitDifferent is the exit code if something changes.
const exitDifferent = 2

// preflighter is the subcommand that lists what changes without kube-proxy.
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
	case r.Differs():
		return exitError(exitDifferent)
	}
	return nil
}
