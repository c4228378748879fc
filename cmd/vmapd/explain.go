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

const explainLong = `Explain says what becomes of a connection on one node, step by step, and why.

It reads manifests, or with --live the objects of a cluster, and makes no connection of
its own to what it explains. It decides as the daemon with the same flags does. What is
wrong with an object is said on standard error; the exit code is 0 if an answer was
printed, whatever it is.

  vmapd explain -f testdata/demo/before --from 203.0.113.7 192.168.98.10:80/tcp
  vmapd explain --live --kubeconfig FILE --node-name node-1 --from node 10.96.0.1:443`

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
		Short: "Say what happens to a connection, and why",
		Long:  explainLong,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return x.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.addFlags(f, "name of the Node on which to look (default: the only Node in the manifests, or the host's name)")
	f.StringArrayVarP(&x.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.BoolVar(&x.live, "live", false, "read the objects of a cluster")
	f.StringVar(&x.kubeconfig, "kubeconfig", "", "with --live: file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&x.master, "master", "", "with --live: address of the API server, in place of the kubeconfig's")
	f.StringVar(&x.source, "from", "", `who connects: an address, or "node" for a process of this node`)
	f.StringVar(&x.iface, "interface", "", "by which interface the connection comes in, for --detect-local-mode by interfaces")
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
	enc.SetEscapeHTML(false) // "=>" is for people, too
	return enc.Encode(e)
}

// connection checks what the command line says, apart from what decides about traffic.
func (x *explainer) connection(dest string) (explain.Input, error) {
	in := explain.Input{Interface: x.iface}
	switch {
	case x.output != "text" && x.output != "json":
		return in, fmt.Errorf("--output: %q is neither text nor json", x.output)
	case x.live == (len(x.paths) > 0):
		return in, errors.New("--filename reads manifests, --live a cluster: give one of them")
	case !x.live && (x.kubeconfig != "" || x.master != ""):
		return in, errors.New("--kubeconfig and --master are for --live")
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
		return in, fmt.Errorf("--from: %v is an %v address, and %v an %v address: no connection goes from one to the other",
			from, model.FamilyOf(from), to, model.FamilyOf(to))
	}
	if in.Node && in.Interface != "" {
		return in, errors.New("--interface: a connection from this node comes in by none")
	}
	return in, nil
}

// fromManifests reads files and folders. It says what is wrong with them.
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
		err = exitError(1) // nothing could be read, and that has been said
	case c.NodeName == "":
		c.NodeName, err = onlyNodeName(out.Nodes)
	}
	return out, objects.Locate, err
}
