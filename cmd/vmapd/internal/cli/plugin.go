package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/plugin"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
)

// PluginName is the program's name as a plugin of kubectl.
const PluginName = "kubectl-vmapd"

// kubectlFlags are flags of kubectl that go to each of its runs.
var kubectlFlags = []string{
	"kubeconfig", "context", "cluster", "user", "as", "as-group", "token", "server", "request-timeout",
}

// asPlugin returns the command with which kubectl starts the plugin.
func asPlugin() *cobra.Command {
	p := &kubectlPlugin{}
	root := &cobra.Command{
		Use: "kubectl-vmapd", Short: "Ask the daemons of a cluster", Long: docs.Help("kubectl vmapd"),
		RunE:             func(*cobra.Command, []string) error { return missing("COMMAND") },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { p.begin(cmd) },
		SilenceUsage:     true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vmapd"},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	f := root.PersistentFlags()
	f.StringVar(&p.Node, "node", "", "name of the node")
	f.StringVar(&p.Plugin.Namespace, "vmapd-namespace", "kube-system", "namespace of vmapd's pods")
	f.StringVar(&p.Selector, "vmapd-selector", "k8s-app=vmapd",
		"labels of vmapd's pods; k8s-app=kube-proxy if vmapd runs in kube-proxy's DaemonSet")
	for _, name := range kubectlFlags {
		f.String(name, "", "as kubectl's")
	}
	root.AddCommand(p.status(), p.doctor(), newUICommand(p.tunnel), p.bundle(), newVersionCommand())
	for _, c := range []*cobra.Command{newExplainCommand(), newTraceCommand(), newServicesCommand()} {
		c.RunE = p.inPod
		root.AddCommand(c)
	}
	return root
}

type kubectlPlugin struct {
	plugin.Plugin
	program plugin.Kubectl
}

func (p *kubectlPlugin) begin(cmd *cobra.Command) {
	for _, name := range kubectlFlags {
		if f := cmd.Flag(name); f.Changed {
			p.program.Flags = append(p.program.Flags, "--"+name+"="+f.Value.String())
		}
	}
	p.Kubectl = p.program.Output
}

func (p *kubectlPlugin) status() *cobra.Command {
	c := newStatusCommand()
	wait := c.Flags().Duration("wait", 0, "without a Service: wait so long for all nodes to be ready")
	notReady := func(nodes []plugin.Answer) bool {
		return slices.ContainsFunc(nodes, func(n plugin.Answer) bool { return !n.Ready() })
	}
	p.onNodes(c, wait, notReady, 1, func(t *report.Text, nodes []plugin.Answer) {
		t.Table(plugin.NodesTable(nodes, time.Now()))
	})
	return c
}

func (p *kubectlPlugin) doctor() *cobra.Command {
	c := newDoctorCommand()
	p.onNodes(c, new(time.Duration), plugin.Failed, doctor.ExitFail, plugin.WriteReports)
	return c
}

// onNodes lets a command ask all nodes or, with --node or about a Service, one. The code is for bad answers.
func (p *kubectlPlugin) onNodes(c *cobra.Command, wait *time.Duration, bad func([]plugin.Answer) bool, code exitError,
	text func(*report.Text, []plugin.Answer),
) {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f := cmd.Flag("wait"); f != nil {
			f.Changed = false // it is the plugin's
		}
		if p.Node != "" || len(args) > 0 {
			return p.inPod(cmd, args)
		}
		if cmd.Flags().Changed("watch") {
			return errors.New("--watch: only with a Service, or with --node")
		}
		line, err := lineOf(cmd, nil)
		var nodes []plugin.Answer
		for end := time.Now().Add(*wait); err == nil; time.Sleep(watchInterval) {
			nodes, err = p.Ask(cmd.Context(), line)
			if !bad(nodes) || time.Now().After(end) || cmd.Context().Err() != nil {
				break
			}
		}
		if err != nil {
			return err
		}
		format := report.Format(cmd.Flag("output").Value.String())
		err = report.Print(cmd.OutOrStdout(), format, nodes, func(t *report.Text) { text(t, nodes) })
		if err == nil && bad(nodes) {
			return code
		}
		return err
	}
}

// tunnel reaches a node's daemon by a command in its pod.
func (p *kubectlPlugin) tunnel(cmd *cobra.Command) (socket.Client, error) {
	target, err := p.find(cmd, "", nil)
	const connections = 2
	dial := func(context.Context, string, string) (net.Conn, error) {
		return p.program.Dial(target.Exec("tunnel")), nil
	}
	transport := &http.Transport{MaxConnsPerHost: connections, DialContext: dial}
	return socket.Client{Path: "node " + target.Node, Transport: transport}, err
}

func (p *kubectlPlugin) bundle() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "bundle [NODE...]", Short: "Collect what a bug report needs, from all nodes or some, in an archive",
		Long: docs.Help("kubectl vmapd bundle"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.Node != "" {
				args = append(args, p.Node)
			}
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			n, missing, err := p.Bundle(cmd.Context(), f, args, time.Now())
			if err = errors.Join(err, f.Close()); err != nil {
				return errors.Join(err, os.Remove(file))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has %s\n", file, report.Plural(n, "file"))
			for _, text := range missing {
				report.Complain(cmd.ErrOrStderr(), "not collected: "+text)
			}
			if len(missing) > 0 {
				return exitError(1)
			}
			return nil
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "vmapd-bundle.tar.gz", "the file")
	return c
}

// find finds the pod, and says which.
func (p *kubectlPlugin) find(cmd *cobra.Command, namespace string, refs []names.Ref) (plugin.Target, error) {
	target, err := p.Find(cmd.Context(), namespace, refs)
	if err == nil {
		report.Complain(cmd.ErrOrStderr(), fmt.Sprintf("node %s, by pod %s/%s", target.Node, target.Namespace, target.Pod))
	}
	return target, err
}

// lineOf returns the command line in a pod, and refuses flags about this machine.
func lineOf(cmd *cobra.Command, args []string) ([]string, error) {
	for _, name := range []string{"filename", "config", "vmapd-config", "socket"} {
		if cmd.Flags().Changed(name) {
			return nil, fmt.Errorf("--%s: only with vmapd %s, on this machine", name, cmd.Name())
		}
	}
	line := []string{cmd.Name()}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			line = append(line, "--"+f.Name+"="+f.Value.String())
		}
	})
	return append(line, args...), nil
}

// inPod runs a command in the pod of the node that it is about. Any node knows a Service.
func (p *kubectlPlugin) inPod(cmd *cobra.Command, args []string) (err error) {
	flags := cmd.Flags()
	var ends []names.Ref // of a connection
	if from := flags.Lookup("from"); from != nil {
		client := from.Value.String()
		if client == "" || client == "any" {
			client = "node"
		}
		q, err := names.Query{}.Between(client, args[0])
		if err != nil {
			return err
		}
		ends = []names.Ref{q.From, q.To}
	}
	namespace := ""
	if f := flags.Lookup("namespace"); f != nil {
		if namespace = f.Value.String(); namespace == "" {
			namespace, err = p.ContextNamespace(cmd.Context())
		}
		if err = cmp.Or(err, f.Value.Set(namespace)); err != nil {
			return err
		}
		f.Changed = true
	}
	target, err := p.find(cmd, namespace, ends)
	if err != nil {
		return err
	}
	if len(target.Client) > 0 {
		six := flags.Changed("ipv6") || strings.HasPrefix(args[0], "[")
		at := slices.IndexFunc(target.Client, func(a string) bool { return strings.Contains(a, ":") == six })
		if err := flags.Set("from", target.Client[max(0, at)]); err != nil {
			return err
		}
	}
	line, err := lineOf(cmd, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if cmd.Name() == "trace" && len(target.Client) > 0 {
		go p.connect(ctx, target, ends[0], namespace, flags.Lookup("from").Value.String(), args[0])
	}
	run := target.Exec(append([]string{"attached"}, line...)...)
	code, err := p.program.Exec(cmd.Context(), run, cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err == nil && code != 0 {
		return exitError(code)
	}
	return err
}

// connect lets the pod that is the client connect while a trace waits for it, as vmapd's pod may not enter the network
// of another. It needs the right to run nc in the pod; otherwise the trace alone says what to do.
func (p *kubectlPlugin) connect(
	ctx context.Context, target plugin.Target, client names.Ref, namespace, from, to string,
) {
	ask := target.Exec("explain", "--output=json", "--namespace="+namespace, "--from="+from, to)
	out, err := p.Kubectl(ctx, ask...)
	var e explain.Explanation
	if err != nil || json.Unmarshal(out, &e) != nil || strings.HasSuffix(e.Dest, "/"+model.SCTP.String()) {
		return
	}
	line := netcat(e.Dest)
	for ctx.Err() == nil {
		_, _ = p.Kubectl(ctx, "exec", "-n", cmp.Or(client.Namespace, namespace), client.Name, "--", "sh", "-c", line)
		select {
		case <-ctx.Done():
		case <-time.After(watchInterval):
		}
	}
}
