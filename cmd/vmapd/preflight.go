package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight"
	"github.com/vmapd/vmapd/model"
)

const preflightLong = `Preflight says what would be different on a node if vmapd served its Services in
place of kube-proxy, and which setting keeps it as it was. It changes nothing.

It compares what the rules that kube-proxy has programmed do with connections to each
Service, from pods of the node, pods of other nodes, the node itself and outside, with
what vmapd would do. On a node, it reads the rules from the kernel (mode nftables, with
CAP_NET_ADMIN) or by iptables-save (mode iptables). Elsewhere, they come from files;
POD is kube-proxy's:

  kubectl -n kube-system exec POD -- iptables-save  > v4.rules
  kubectl -n kube-system exec POD -- ip6tables-save > v6.rules
  kubectl -n kube-system exec POD -- nft list ruleset > rules.nft
  vmapd preflight --live --kubeconfig FILE --node-name NODE --nft rules.nft

vmapd is configured by --config or, without it, by kube-proxy's own configuration.

Exit codes: 0 if nothing is different, 2 if something is, and 1 after an error.`

// exitDifferent is the exit code if something would be different.
const exitDifferent = 2

// preflighter is the subcommand that compares kube-proxy with vmapd.
type preflighter struct {
	nodeFlags
	paths         []string
	live          bool
	kubeconfig    string
	master        string
	iptablesSave  string
	ip6tablesSave string
	nft           string
	kubeProxyFile string
	nodeAddresses []string
	output        string
}

func newPreflightCommand() *cobra.Command {
	var p preflighter
	c := &cobra.Command{
		Use:   "preflight {-f PATH | --live}",
		Short: "Say what would be different without kube-proxy",
		Long:  preflightLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	p.addFlags(f, "name of the Node (default: the only Node in the manifests, or the host's name)")
	f.StringArrayVarP(&p.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.BoolVar(&p.live, "live", false, "read the objects of a cluster, and kube-proxy's ConfigMap")
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "with --live: file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&p.master, "master", "", "with --live: address of the API server; overrides the kubeconfig's")
	f.StringVar(&p.iptablesSave, "iptables-save", "", "file with the output of iptables-save, in place of this node's rules")
	f.StringVar(&p.ip6tablesSave, "ip6tables-save", "", "file with the output of ip6tables-save")
	f.StringVar(&p.nft, "nft", "", "file with the output of nft list ruleset or nft -j list ruleset")
	f.StringVar(&p.kubeProxyFile, "kube-proxy-config", "", "kube-proxy's configuration file (default: its ConfigMap, or its port for metrics)")
	f.StringSliceVar(&p.nodeAddresses, "node-addresses", nil, "addresses of the node's interfaces, the preferred ones first (default: this node's; with files of rules, the Node's)")
	f.StringVarP(&p.output, "output", "o", "text", "text, json or yaml")
	return c
}

// confirmAfter is longer than kube-proxy waits between two syncs, by default.
const confirmAfter = 3 * time.Second

func (p *preflighter) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := p.check(); err != nil {
		return err
	}
	r, err := p.report(ctx, stderr)
	if err != nil {
		return err
	}
	if r.Differs() && p.live && p.fromNode() {
		// A change of the cluster may be on its way to kube-proxy.
		select {
		case <-time.After(confirmAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
		again, err := p.report(ctx, io.Discard)
		if err != nil {
			return err
		}
		r = again.Confirming(r)
	}
	if err := writeOutput(stdout, p.output, r, r.WriteText); err != nil {
		return err
	}
	if r.Differs() {
		return exitError(exitDifferent)
	}
	return nil
}

func (p *preflighter) check() error {
	switch {
	case p.output != "text" && p.output != "json" && p.output != "yaml":
		return fmt.Errorf("--output: %q is none of text, json and yaml", p.output)
	case p.live == (len(p.paths) > 0):
		return errors.New("give either --filename, for manifests, or --live, for a cluster")
	case !p.live && (p.kubeconfig != "" || p.master != ""):
		return errors.New("--kubeconfig and --master need --live")
	case p.nft != "" && (p.iptablesSave != "" || p.ip6tablesSave != ""):
		return errors.New("--nft is for mode nftables, --iptables-save and --ip6tables-save are for mode iptables: give one or the other")
	}
	return nil
}

// fromNode reports whether the rules are those of this node.
func (p *preflighter) fromNode() bool {
	return p.nft == "" && p.iptablesSave == "" && p.ip6tablesSave == ""
}

// report reads everything and compares it.
func (p *preflighter) report(ctx context.Context, stderr io.Writer) (*preflight.Report, error) {
	var in preflight.Input
	cluster, err := p.connect()
	if err != nil {
		return nil, err
	}
	conf, err := p.configure(ctx, cluster, &in, stderr)
	if err != nil {
		return nil, err
	}
	in.Config = conf.Model()
	in.Backend = string(conf.Backend)
	if conf.Backend == config.Auto {
		in.Backend = string(config.NFTables)
	}
	if p.nodeName != "" {
		in.Config.NodeName = p.nodeName
	}
	if err := p.readObjects(ctx, cluster, &in, stderr); err != nil {
		return nil, err
	}
	if err := p.readAddresses(&in); err != nil {
		return nil, err
	}
	if err := p.readRules(ctx, &in); err != nil {
		return nil, err
	}
	return preflight.Compare(in)
}

func (p *preflighter) readAddresses(in *preflight.Input) error {
	for _, text := range p.nodeAddresses {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--node-addresses: %w", err)
		}
		in.HostAddresses = append(in.HostAddresses, a.Unmap())
	}
	if len(p.nodeAddresses) > 0 || !p.fromNode() {
		return nil
	}
	var err error
	if in.HostAddresses, err = hostAddresses(); err != nil {
		return fmt.Errorf("read the addresses of this node (--node-addresses): %w", err)
	}
	return nil
}

// readRules reads kube-proxy's rules from files, or from this node.
func (p *preflighter) readRules(ctx context.Context, in *preflight.Input) error {
	var err error
	switch {
	case p.nft != "":
		err = p.readNFTFile(in)
	case !p.fromNode():
		err = p.readSavedFiles(in)
	default:
		if err = readNodeRules(ctx, in); err == nil {
			err = noteMode(ctx, in)
		}
	}
	if err != nil {
		return err
	}
	for _, f := range model.Families {
		if in.Before[f] != nil || in.Mode == string(config.IPVS) {
			return nil
		}
	}
	if !p.fromNode() {
		return errors.New("the files have no rules of kube-proxy's")
	}
	return errors.New("this node has no rules of kube-proxy's that could be read, and nothing says that it runs with mode ipvs: run preflight on a node where it runs, or give its rules in files (--iptables-save, --ip6tables-save, --nft)")
}
