package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/manifest"
)

const explainLong = `Explain explains, step by step, what happens to a connection on one node.

  vmapd explain --from pod/web-1 svc/frontend:80    (on a node: asks the daemon)
  vmapd explain --live --kubeconfig FILE --from pod/web-1 svc/frontend:http
  vmapd explain -f DIR --from 203.0.113.7 192.168.98.10:80/tcp

Both ends have an address or a name: pod/NAME, deploy/NAME (or sts, ds, rs; one of its
pods is taken), node/NODE, svc/NAME:PORT, or the Service's name in DNS, such as
web.default.svc.cluster.local:http. KIND/NAMESPACE/NAME names an object of another
namespace than that of -n. PORT is a number or a Service's port name; for a Service
with one port it may be left out. "node" is the node that decides.

The node that decides is the client's, or that of --node-name. The daemon on this node
explains its own state and compares it with the kernel's; with -f or --live, flags and
files of the configuration stand for a daemon's. --probe also connects, and says what
each endpoint answered.

Exit codes: 0 after an explanation, 2 if it is not the expected one (--expect), and 1
after an error.`

// explainer is the subcommand that explains a connection.
type explainer struct {
	nodeFlags
	explainRequest
	paths      []string
	live       bool
	kubeconfig string
	master     string
	socket     string
	output     string
	expect     string
	problems   bool
	probe      bool
	ipv4, ipv6 bool

	set *pflag.FlagSet
}

func newExplainCommand() *cobra.Command {
	var x explainer
	c := &cobra.Command{
		Use:   "explain [-f PATH | --live] --from CLIENT DESTINATION[:PORT[/PROTOCOL]]",
		Short: "Explain what happens to a connection",
		Long:  explainLong,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			x.To = args[0]
			return x.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	x.set = f
	x.addFlags(f, "name of the Node that handles the connection (default: the client's, the only Node in the manifests, or the host's name)")
	x.addEnds(f)
	f.StringVar(&x.Interface, "interface", "", "interface by which the connection arrives, for the modes of --detect-local-mode by interface")
	f.BoolVar(&x.probe, "probe", false, "connect to the destination and to used endpoints, from here or from the pod's network")
	f.BoolVar(&x.problems, "problems", false, "print the problems of all objects to standard error")
	f.BoolVar(&x.All, "all", false, "list everything, also what rarely matters")
	_ = c.MarkFlagRequired("from")
	return c
}

// addEnds adds the flags about both ends of a connection, about the source of their names, and about the
// result.
func (x *explainer) addEnds(f *pflag.FlagSet) {
	f.StringArrayVarP(&x.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.BoolVar(&x.live, "live", false, "read the objects of a cluster")
	f.StringVar(&x.kubeconfig, "kubeconfig", "", "with --live: file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&x.master, "master", "", "with --live: address of the API server; overrides the kubeconfig's")
	f.StringVar(&x.socket, "socket", socket.DefaultPath, "socket of the daemon on this node, which is asked without -f and --live")
	f.StringVar(&x.From, "from", "", `client: an address, a name such as pod/NAME, or "node" for a process of the node`)
	f.StringVarP(&x.Namespace, "namespace", "n", "", "namespace of names without one (default: the only one that has the name)")
	f.StringVar(&x.ClusterDomain, "cluster-domain", "", "last part of Services' names in DNS (default: cluster.local)")
	f.StringVar(&x.Family, "family", "", "IPv4 or IPv6, if both are possible (default: the Service's first)")
	f.BoolVarP(&x.ipv4, "ipv4", "4", false, "the same as --family IPv4")
	f.BoolVarP(&x.ipv6, "ipv6", "6", false, "the same as --family IPv6")
	f.StringVar(&x.Via, "via", "", "kind of the Service's address: clusterIP, nodePort, loadBalancer or externalIP (default: clusterIP)")
	f.StringVar(&x.expect, "expect", "", "forwarded, refused, dropped or unhandled, with =ADDRESS for an endpoint: exit code 2 if it is otherwise")
	f.StringVarP(&x.output, "output", "o", "text", "text, json or yaml")
}

func (x *explainer) run(ctx context.Context, stdout, stderr io.Writer) error {
	want, err := x.check()
	if err != nil {
		return err
	}
	e, err := x.explanation(ctx, stderr)
	if err != nil {
		return err
	}
	if x.probe {
		probeConnections(&e)
	}
	if err := writeOutput(stdout, x.output, e, e.WriteText); err != nil {
		return err
	}
	if otherwise := want.Differs(e); otherwise != "" {
		fmt.Fprintln(stderr, "vmapd: "+model.OneLine(otherwise))
		return exitError(explain.ExitUnexpected)
	}
	return nil
}

// explanation explains, or lets the daemon explain.
func (x *explainer) explanation(ctx context.Context, stderr io.Writer) (explain.Explanation, error) {
	if !x.live && len(x.paths) == 0 {
		return x.fromDaemon(ctx)
	}
	q, err := x.query()
	if err != nil {
		return explain.Explanation{}, err
	}
	conf, traffic, err := x.load(stderr)
	if err != nil {
		return explain.Explanation{}, err
	}
	q.NodeName = traffic.NodeName
	w := known{config: traffic, locate: func(model.Problem) string { return "" }}
	if x.live {
		err = x.fromCluster(ctx, conf.Client(), &w, q, stderr)
	} else {
		err = x.fromManifests(&w, stderr)
	}
	if err != nil {
		return explain.Explanation{}, err
	}
	if q.Default, err = onlyNodeName(w.Nodes); err != nil && q.NodeName == "" {
		return explain.Explanation{}, err
	}
	in, err := x.input(&w, q)
	if err != nil {
		return explain.Explanation{}, err
	}
	in.ByListeners = conf.Backend == config.Userspace
	if x.problems {
		for _, p := range in.Builder.Snapshot().Problems() {
			fmt.Fprintln(stderr, located(w.locate(p), p))
		}
	}
	return w.explain(ctx, in), nil
}

// check checks the flags that the daemon does not check.
func (x *explainer) check() (explain.Expectation, error) {
	want, err := x.checkEnds()
	if err == nil {
		_, err = x.query()
	}
	return want, err
}

// checkEnds checks the flags of addEnds, without the ends' names.
func (x *explainer) checkEnds() (explain.Expectation, error) {
	want, err := explain.ParseExpectation(x.expect)
	switch {
	case err != nil:
		return want, fmt.Errorf("--expect: %w", err)
	case x.output != "text" && x.output != "json" && x.output != "yaml":
		return want, fmt.Errorf("--output: %q is none of text, json and yaml", x.output)
	case x.live && len(x.paths) > 0:
		return want, errors.New("give either --filename, for manifests, or --live, for a cluster")
	case !x.live && (x.kubeconfig != "" || x.master != ""):
		return want, errors.New("--kubeconfig and --master need --live")
	case x.ipv4 && x.ipv6, x.Family != "" && (x.ipv4 || x.ipv6):
		return want, errors.New("give one of --family, -4 and -6")
	case x.ipv4:
		x.Family = model.IPv4.String()
	case x.ipv6:
		x.Family = model.IPv6.String()
	}
	return want, nil
}

// fromDaemon asks the daemon of this node.
func (x *explainer) fromDaemon(ctx context.Context) (explain.Explanation, error) {
	var e explain.Explanation
	var local []string
	for _, name := range x.Given() {
		local = append(local, "--"+name)
	}
	if x.set.Changed("node-name") {
		local = append(local, "--node-name")
	}
	switch {
	case x.problems:
		return e, errors.New("--problems needs manifests (-f) or --live; vmapd services shows what the daemon leaves out")
	case len(local) > 0:
		return e, fmt.Errorf("%s: the daemon of this node has a configuration of its own; for another one, give manifests (-f) or --live", strings.Join(local, ", "))
	}
	err := socket.Client{Path: x.socket}.Get(ctx, "/v1/explain", x.values(), &e)
	if errors.Is(err, socket.ErrNoDaemon) {
		err = fmt.Errorf("%w; without a daemon, give manifests (-f) or --live", err)
	}
	return e, err
}

// fromManifests reads files and folders.
func (x *explainer) fromManifests(w *known, stderr io.Writer) error {
	objects, errs, err := manifest.LoadAll(x.paths)
	if err != nil {
		return err
	}
	warnUnread(stderr, objects)
	switch n := len(errs); {
	case x.problems, n > 0 && objects.Len() == 0:
		for _, e := range errs {
			fmt.Fprintln(stderr, e)
		}
	case n > 1:
		fmt.Fprintf(stderr, "%v (and %d more errors: --problems prints all)\n", errs[0], n-1)
	case n == 1:
		fmt.Fprintln(stderr, errs[0])
	}
	if len(errs) > 0 && objects.Len() == 0 {
		return exitError(1) // nothing could be read, and the errors were printed
	}
	w.addManifests(objects)
	w.locate = objects.Locate
	return nil
}

// input resolves the names of a query, and checks the node.
func (r explainRequest) input(w *known, q names.Query) (explain.Input, error) {
	answer, err := w.Resolve(q)
	if err != nil {
		return explain.Input{}, errors.New(model.OneLine(err.Error())) // nothing has checked names in manifests
	}
	if err := w.CheckNode(answer.NodeName); err != nil {
		return explain.Input{}, fmt.Errorf("--node-name: %w", err)
	}
	w.config.NodeName = answer.NodeName
	in := explain.Input{
		Config: w.config, Objects: w.objects(), Names: &w.Directory, All: r.All,
		Client: answer.Client, Server: answer.Server, Notes: answer.Notes,
		Connection: model.Connection{
			Source: answer.Source, Node: answer.Process, Interface: r.Interface, Dest: answer.Dest, Protocol: answer.Protocol,
		},
	}
	in.Builder = in.Objects.Builder(in.Config)
	if in.Node && !in.Source.IsValid() {
		if in.Source, err = in.NodeAddress(); err != nil {
			return in, fmt.Errorf("--from: %w", err)
		}
	}
	return in, nil
}
