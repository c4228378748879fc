package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/manifest"
)

const explainLong = `Explain explains, step by step, what happens to a connection on one node.

It reads manifests or, with --live, the objects of a cluster. It does not connect to the
destination, and decides as the daemon with the same flags. Problems of objects are
printed to standard error; the exit code is 0 if an explanation was printed.

  vmapd explain -f testdata/demo/before --from 203.0.113.7 192.168.98.10:80/tcp
  vmapd explain --live --kubeconfig FILE --node-name node-1 --from node \
      10.96.0.1:443`

// explainer is the subcommand that explains a connection.
type explainer struct {
	nodeFlags
	paths      []string
	live       bool
	kubeconfig string
	master     string
	source     string
	iface      string
	output     string
}

func newExplainCommand() *cobra.Command {
	var x explainer
	c := &cobra.Command{
		Use:   "explain {-f PATH | --live} --from ADDRESS DESTINATION:PORT[/PROTOCOL]",
		Short: "Explain what happens to a connection",
		Long:  explainLong,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.addFlags(f, "name of the Node that handles the connection (default: the only Node in the manifests, or the host's name)")
	f.StringArrayVarP(&x.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.BoolVar(&x.live, "live", false, "read the objects of a cluster")
	f.StringVar(&x.kubeconfig, "kubeconfig", "", "with --live: file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&x.master, "master", "", "with --live: address of the API server; overrides the kubeconfig's")
	f.StringVar(&x.source, "from", "", `source of the connection: an address, or "node" for a process of this node`)
	f.StringVar(&x.iface, "interface", "", "interface by which the connection arrives, for the modes of --detect-local-mode by interface")
	f.StringVarP(&x.output, "output", "o", "text", "text or json")
	_ = c.MarkFlagRequired("from")
	return c
}

func (x *explainer) run(ctx context.Context, dest string, stdout, stderr io.Writer) error {
	in, err := x.connection(dest)
	if err != nil {
		return err
	}
	conf, traffic, err := x.load(stderr)
	if err != nil {
		return err
	}
	in.Config = traffic
	locate := func(model.Problem) string { return "" }
	if x.live {
		in.Objects, err = x.fromCluster(ctx, conf.Client(), &in.Config, stderr)
	} else {
		in.Objects, locate, err = x.fromManifests(&in.Config, stderr)
	}
	if err != nil {
		return err
	}
	in.Builder = in.Objects.Builder(in.Config)
	for _, p := range in.Builder.Snapshot().Problems() {
		fmt.Fprintln(stderr, located(locate(p), p))
	}
	if in.Node && !in.Source.IsValid() {
		if in.Source, err = in.NodeAddress(); err != nil {
			return fmt.Errorf("--from: %w", err)
		}
	}
	e := explain.Explain(in)
	if x.output == "text" {
		return e.WriteText(stdout)
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // "=>" stays readable
	return enc.Encode(e)
}

// connection checks the arguments and flags that describe the connection.
func (x *explainer) connection(dest string) (explain.Input, error) {
	in := explain.Input{Connection: model.Connection{Interface: x.iface}}
	switch {
	case x.output != "text" && x.output != "json":
		return in, fmt.Errorf("--output: %q is neither text nor json", x.output)
	case x.live == (len(x.paths) > 0):
		return in, errors.New("give either --filename, for manifests, or --live, for a cluster")
	case !x.live && (x.kubeconfig != "" || x.master != ""):
		return in, errors.New("--kubeconfig and --master need --live")
	}
	var err error
	if in.Dest, in.Protocol, err = explain.ParseDestination(dest); err != nil {
		return in, err
	}
	if x.source == "node" {
		in.Node = true
	} else if in.Source, err = explain.ParseSource(x.source); err != nil {
		return in, fmt.Errorf("--from: %w", err)
	}
	if from, to := in.Source, in.Dest.Addr(); from.IsValid() && from.Is4() != to.Is4() {
		return in, fmt.Errorf("--from: %v is an %v address, but %v is an %v address: there is no connection between them",
			from, model.FamilyOf(from), to, model.FamilyOf(to))
	}
	if in.Node && in.Interface != "" {
		return in, errors.New("--interface: a connection from this node does not arrive by an interface")
	}
	return in, nil
}

// fromManifests reads files and folders, and prints their errors.
func (x *explainer) fromManifests(c *model.Config, stderr io.Writer) (explain.Objects, func(model.Problem) string, error) {
	objects, errs := manifest.Load(x.paths)
	for _, e := range errs {
		fmt.Fprintln(stderr, e)
	}
	out := explain.Objects{
		Services: objects.Services(), EndpointSlices: objects.EndpointSlices(),
		Nodes: objects.Nodes(), ServiceCIDRs: objects.ServiceCIDRs(),
	}
	var err error
	switch {
	case len(errs) > 0 && objects.Len() == 0:
		err = exitError(1) // nothing could be read, and the errors were printed
	case c.NodeName == "":
		c.NodeName, err = onlyNodeName(out.Nodes)
	}
	return out, objects.Locate, err
}
