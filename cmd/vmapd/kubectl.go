package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/plugin"
)

// pluginName is the program's name as a plugin of kubectl.
const pluginName = "kubectl-vmapd"

const kubectlLong = `This is vmapd as a plugin of kubectl: it runs a subcommand beside the daemon of a node,
through the API server. As kubectl-vmapd in a folder of PATH, the program is "kubectl vmapd".

  kubectl vmapd --node node-1 doctor
  kubectl vmapd explain --from pod/web-1 svc/frontend:80
  kubectl vmapd status -n shop frontend

COMMAND is explain, trace, status, services or doctor, with its own flags;
"vmapd COMMAND --help" describes them. Without --node, the node is that of the
client, or of the destination: of a pod, of a node, or of an endpoint of a Service. If there
is none, one node of all is asked.

It runs kubectl, and needs the rights to get and list vmapd's pods and to create pods/exec in their
namespace, and to read the pods and EndpointSlices that are named.`

// pluginCommands are the commands that ask a daemon, or look at a node.
var pluginCommands = []string{"explain", "trace", "status", "services", "doctor"}

// kubectlFlags are flags of kubectl that go to each of its runs.
var kubectlFlags = []string{"kubeconfig", "context", "cluster", "user", "as", "as-group", "token", "server", "request-timeout"}

func newKubectlCommand() *cobra.Command {
	var p plugin.Plugin
	c := &cobra.Command{
		Use:   "kubectl [flags] COMMAND [ARGUMENTS]",
		Short: "Run a subcommand on a node of a cluster, by kubectl",
		Long:  kubectlLong,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlugin(cmd, &p, args)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows COMMAND is the command's
	f.StringVar(&p.Node, "node", "", "name of the node; it may also stand behind COMMAND")
	f.StringVar(&p.Namespace, "vmapd-namespace", "kube-system", "namespace of vmapd's pods")
	f.StringVar(&p.Selector, "vmapd-selector", "k8s-app=vmapd", "labels of vmapd's pods; k8s-app=kube-proxy after way A of FROM-KUBE-PROXY.md")
	for _, name := range kubectlFlags {
		f.String(name, "", "as kubectl's")
	}
	return c
}

// asPlugin returns the command with which kubectl starts the plugin.
func asPlugin() *cobra.Command {
	c := newKubectlCommand()
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vmapd"}
	c.SilenceUsage, c.SilenceErrors = true, true
	setHelp(c)
	return c
}

func runPlugin(cmd *cobra.Command, p *plugin.Plugin, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want one of the commands %s", strings.Join(pluginCommands, ", "))
	}
	args = cutNode(args, &p.Node)
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	remote, err := remoteCommand(args, stdout)
	if err != nil || remote == nil {
		return err
	}
	flags := remote.Flags()
	p.RefNamespace = flagValue(flags, "namespace")
	if p.Refs, err = refsOf(remote); err != nil {
		return err
	}
	var kubectl plugin.Kubectl
	for _, name := range kubectlFlags {
		if f := cmd.Flags().Lookup(name); f.Changed {
			kubectl.Flags = append(kubectl.Flags, "--"+name+"="+f.Value.String())
		}
	}
	p.Kubectl = kubectl.Output
	target, err := p.Find(cmd.Context())
	if err != nil && strings.Contains(err.Error(), "(Forbidden)") {
		return fmt.Errorf("%w; %s", err, permissions)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "vmapd: node %s, by pod %s/%s (%s)\n", target.Node, target.Namespace, target.Pod, target.Why)
	var said bytes.Buffer
	code, err := kubectl.Exec(cmd.Context(), target.Exec(withClient(args, flags, target.Client)), stdout, io.MultiWriter(stderr, &said))
	if err == nil && code != 0 && strings.Contains(said.String(), "is forbidden: ") && strings.Contains(said.String(), "pods/exec") {
		return errors.New("this user may not run vmapd in its pods; " + permissions)
	}
	if err == nil && code != 0 {
		return exitError(code)
	}
	return err
}

const permissions = "cmd/vmapd/deploy/kubectl.yaml has the permissions that kubectl vmapd needs"

// remoteCommand parses the arguments of a command as the node will, so that a mistake is told here. It
// returns nil after it has printed the command's help.
func remoteCommand(args []string, stdout io.Writer) (*cobra.Command, error) {
	root := newRootCommand(new(start))
	root.SetOut(stdout)
	remote, rest, err := root.Find(args)
	if err != nil || remote == root || !slices.Contains(pluginCommands, remote.Name()) {
		return nil, fmt.Errorf("command %q: want one of %s", args[0], strings.Join(pluginCommands, ", "))
	}
	remote.InitDefaultHelpFlag()
	if err := remote.ParseFlags(rest); err != nil {
		return nil, remote.FlagErrorFunc()(remote, err)
	}
	flags := remote.Flags()
	if flagValue(flags, "help") == "true" {
		return nil, remote.Help()
	}
	for _, name := range []string{"filename", "live", "kubeconfig", "master", "config", "vmapd-config"} {
		if flags.Changed(name) {
			return nil, fmt.Errorf("--%s: it is for a process on this machine; use vmapd %s", name, remote.Name())
		}
	}
	return remote, errors.Join(remote.ValidateRequiredFlags(), remote.ValidateArgs(flags.Args()))
}

// refsOf returns what a command is about: the client and the destination of a connection, or a Service.
func refsOf(remote *cobra.Command) ([]names.Ref, error) {
	var refs []names.Ref
	add := func(flag, text string, parse func(string) (names.Ref, error)) error {
		if text == "" {
			return nil
		}
		ref, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		refs = append(refs, ref)
		return nil
	}
	if err := add("--from", flagValue(remote.Flags(), "from"), names.ParseSource); err != nil {
		return nil, err
	}
	args := remote.Flags().Args()
	if len(args) == 0 {
		return refs, nil
	}
	if remote.Flags().Lookup("from") != nil {
		return refs, add("destination", args[0], names.ParseDestination)
	}
	return refs, add("Service", args[0], names.ParseService)
}

// flagValue returns the value of a flag, or "".
func flagValue(flags *pflag.FlagSet, name string) string {
	if f := flags.Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// cutNode takes --node out of the arguments of a command.
func cutNode(args []string, node *string) []string {
	for i, a := range args {
		name, is := strings.CutPrefix(a, "--node=")
		switch {
		case is:
			*node = name
			return slices.Delete(slices.Clone(args), i, i+1)
		case a == "--node" && i+1 < len(args):
			*node = args[i+1]
			return slices.Delete(slices.Clone(args), i, i+2)
		}
	}
	return args
}

// withClient replaces the name of the client by its address in the family of the connection.
func withClient(args []string, flags *pflag.FlagSet, addrs []string) []string {
	from := flagValue(flags, "from")
	if len(addrs) == 0 || from == "" {
		return args
	}
	six := flagValue(flags, "ipv6") == "true" || strings.EqualFold(flagValue(flags, "family"), "IPv6") || strings.HasPrefix(strings.Join(flags.Args(), ""), "[")
	addr := addrs[0]
	for _, a := range addrs {
		if strings.Contains(a, ":") == six {
			addr = a
			break
		}
	}
	args = slices.Clone(args)
	for i, a := range args {
		if a == from || a == "--from="+from {
			args[i] = strings.TrimSuffix(a, from) + addr
		}
	}
	return args
}
