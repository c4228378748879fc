package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
)

type connection struct {
	NodeFlags
	query      names.Query // without its ends
	from, to   string
	socket     string
	output     report.Format
	expect     string
	ipv4, ipv6 bool
}

func newExplainCommand() *cobra.Command {
	var x connection
	c := &cobra.Command{
		Use:   "explain [-f PATH | --kubeconfig FILE] --from CLIENT DESTINATION",
		Short: "Explain what happens to a connection",
		Long:  docs.Help("explain", "Ends of a connection"),
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if x.to = args[0]; x.from == "" {
				return missing("client (--from CLIENT)")
			}
			return x.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	x.addFlags(c.Flags())
	c.Flags().StringVar(&x.query.Interface, "interface", "",
		"interface by which the connection arrives, if pods are recognized by it")
	return c
}

func (x *connection) addFlags(f *pflag.FlagSet) {
	x.NodeFlags.addFlags(f,
		"with -f and --kubeconfig: node that decides (default: the client's, the only one, or the host)")
	x.addKubeconfig(f)
	f.StringVar(&x.socket, "socket", socket.DefaultPath,
		"socket of the daemon on this node, which is asked without -f and --kubeconfig")
	f.StringVar(&x.from, "from", "", `client: an address, pod/NAME, node/NAME, or "node" for a process of the node`)
	f.StringVarP(&x.query.Namespace, "namespace", "n", "",
		"namespace of names without one (default: the only one that has the name)")
	f.BoolVarP(&x.ipv4, "ipv4", "4", false, "IPv4, if both families are possible")
	f.BoolVarP(&x.ipv6, "ipv6", "6", false, "IPv6, if both families are possible")
	f.StringVar(&x.expect, "expect", "",
		"exit code 2 if it is not this: forwarded, rejected, dropped, not-a-service, or forwarded=ADDRESS")
	report.AddFormat(f, &x.output)
}

func (x *connection) run(ctx context.Context, stdout, stderr io.Writer) error {
	want, err := x.check()
	if err != nil {
		return err
	}
	q, err := x.query.Between(x.from, x.to)
	if err != nil {
		return err
	}
	e, err := x.explanation(ctx, q, stderr)
	if err != nil {
		return err
	}
	if err := report.Print(stdout, x.output, e, e.Write); err != nil {
		return err
	}
	return want.Check(e.Verdict, e.Conclusion, e.Used)
}

// check checks the flags, but for the ends' names.
func (x *connection) check() (explain.Expectation, error) {
	want, err := explain.ParseExpectation(x.expect)
	switch {
	case err != nil:
		return want, fmt.Errorf("--expect: %w", err)
	case x.ipv4 && x.ipv6:
		return want, errors.New("give either -4 or -6")
	case x.ipv4:
		x.query.Family = model.IPv4.String()
	case x.ipv6:
		x.query.Family = model.IPv6.String()
	}
	return want, nil
}

// explanation explains, or lets the daemon explain.
func (x *connection) explanation(
	ctx context.Context, q names.Query, stderr io.Writer,
) (e explain.Explanation, err error) {
	if !x.hasObjects() {
		if x.NodeName != "" || x.ConfigFile != "" || x.OwnConfigFile != "" {
			return e, errors.New("--node-name, --config and --vmapd-config: only with -f or --kubeconfig")
		}
		err := socket.Client{Path: x.socket}.Get(ctx, "/v1/explain", q.Values(), &e)
		if errors.Is(err, socket.ErrNoDaemon) {
			err = fmt.Errorf("%w\nwithout a daemon, give manifests (-f) or a cluster (--kubeconfig)", err)
		}
		return e, err
	}
	conf, err := x.Load(stderr)
	if err != nil {
		return e, err
	}
	q.NodeName = conf.Model().NodeName
	d, err := x.read(ctx, &q, stderr)
	if err != nil {
		return e, err
	}
	if q.Default, err = config.OnlyNode(q.NodeName, d.Nodes); err != nil {
		return e, err
	}
	in, err := explain.NewInput(d, conf.Model(), q)
	if err != nil {
		return e, err
	}
	in.Compile()
	in.ByListeners = conf.Backend == config.Userspace
	return explain.Explain(in), nil
}
