package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	// The cluster outlives this program: its processes must not inherit files of the caller, such as
	// a lock.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		fmt.Fprintf(os.Stderr, "cluster: keep the caller's files from the cluster: %v\n", err)
		os.Exit(1)
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main without globals. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand(&options{})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return report(ctx, root.ExecuteContext(ctx), stderr)
}

// report says an error, unless it was said already, and returns the exit code.
func report(ctx context.Context, err error, stderr io.Writer) int {
	var code exitError
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil: // programs were killed, so their errors are not the cause
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "cluster: %v\n", err)
	return 1
}

// exitError is the exit code of a program that the user asked for, which has said why.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// options are the values of the command line that several commands share.
type options struct {
	name   string
	dir    string
	kube   string
	nodes  int
	deploy string
}

// imagePrograms are those of Kubernetes' that run in containers, and those given.
func imagePrograms(more ...string) []string {
	return append([]string{"kube-proxy", "coredns", "agnhost"}, more...)
}

const rootLong = `cluster starts a real Kubernetes on this machine, from released programs, with vmapd or
kube-proxy as its Service proxy: two nodes or more, each with a kubelet, containerd and a
network namespace of its own. It needs root, and Debian's packages containerd, runc and
containernetworking-plugins.

  cluster up --kube DIR        start it; it runs until the command down
  cluster kubectl -- get pods  use it; also its plugin: kubectl -- vmapd --node n1 status
  cluster exec n1 -- nft list ruleset
  cluster down                 end it, and leave nothing but logs and images`

func newRootCommand(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes on one machine",
		Long:          rootLong,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVar(&o.name, "name", "c", "name of the cluster; clusters of different names can run at the same time")
	flags.StringVar(&o.dir, "dir", "", "folder of the cluster's data and logs (default vmapd-cluster/NAME in the user's cache folder)")
	root.AddCommand(newUpCommand(o), newDownCommand(o), newProxyCommand(o), newKubectlCommand(o), newExecCommand(o))
	root.AddCommand(newTestCommand(o), newE2ECommand(o), newTableCommand(), newLifeCommand(o))
	return root
}

func (o *options) addUpFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.kube, "kube", "", "folder of Kubernetes' released programs")
	c.Flags().IntVar(&o.nodes, "nodes", 2, "number of nodes")
	o.addProxyFlags(c)
}

func (o *options) addProxyFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.deploy, "deploy", "cmd/vmapd/deploy", "folder of vmapd's manifests")
}

// new returns the cluster that the flags describe.
func (o *options) new(log *slog.Logger) (*kube.Cluster, error) {
	if o.kube == "" {
		return nil, &kube.MissingError{}
	}
	return kube.New(kube.Config{Name: o.name, Dir: o.dir, KubeDir: o.kube, Nodes: o.nodes, Log: log})
}

// open returns the cluster that runs.
func (o *options) open(log *slog.Logger) (*kube.Cluster, error) {
	dir := o.dir
	if dir == "" {
		var err error
		if dir, err = kube.DefaultDir(o.name); err != nil {
			return nil, err
		}
	}
	return kube.Open(dir, log)
}

// openFor returns the cluster that runs, and the proxy that an argument names.
func (o *options) openFor(proxy string, log io.Writer) (*kube.Cluster, kube.Proxy, error) {
	p, err := kube.ParseProxy(proxy)
	if err != nil {
		return nil, p, err
	}
	p.Deploy = o.deploy
	c, err := o.open(logTo(log))
	return c, p, err
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func newUpCommand(o *options) *cobra.Command {
	var proxy string
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster with a Service proxy and DNS",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := kube.ParseProxy(proxy)
			if err != nil {
				return fmt.Errorf("--proxy: %w", err)
			}
			p.Deploy = o.deploy
			c, err := o.new(logTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return up(cmd.Context(), c, p)
		},
	}
	o.addUpFlags(c)
	c.Flags().StringVar(&proxy, "proxy", kube.Vmapd, "the Service proxy: vmapd or kube-proxy, also with :nftables or :iptables")
	return c
}

// up writes the images, and starts a cluster with a proxy and DNS, or leaves nothing.
func up(ctx context.Context, c *kube.Cluster, p kube.Proxy) error {
	if err := c.Check(imagePrograms()...); err != nil {
		return err
	}
	if err := writeImages(ctx, c); err != nil {
		return err
	}
	if err := c.Up(ctx); err != nil {
		return err
	}
	err := c.InstallProxy(ctx, p)
	if err == nil {
		err = c.InstallDNS(ctx)
	}
	if err != nil {
		return errors.Join(err, c.Down())
	}
	return nil
}

func newDownCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End a cluster, also one that was left behind",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// No program is needed for this.
			c, err := kube.New(kube.Config{Name: o.name, Dir: o.dir, Nodes: 1})
			if err != nil {
				return err
			}
			return c.Down()
		},
	}
}

func newProxyCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "proxy PROXY",
		Short: "Replace the Service proxy of a running cluster",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, err := o.openFor(args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return c.InstallProxy(cmd.Context(), p)
		},
	}
	o.addProxyFlags(c)
	return c
}

func newKubectlCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl -- ARG...",
		Short: "Run kubectl, or its plugin vmapd, as administrator of a cluster",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.open(nil)
			if err != nil {
				return err
			}
			return attach(cmd, c.KubectlCommand(cmd.Context(), args...))
		},
	}
}

func newExecCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "exec SPACE -- COMMAND [ARG]...",
		Short: "Run a program in a node, or in control or outside",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.open(nil)
			if err != nil {
				return err
			}
			return attach(cmd, c.In(cmd.Context(), args[0], args[1:]...))
		},
	}
}

// attach runs a program with the standard files of this one.
func attach(cmd *cobra.Command, program *exec.Cmd) error {
	program.Stdin, program.Stdout, program.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := program.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exitError(exit.ExitCode())
	}
	return err
}
