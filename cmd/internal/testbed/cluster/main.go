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
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without globals. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand(&options{})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil { // programs were killed, so their errors are not the cause
		err = context.Cause(ctx)
	}
	fmt.Fprintf(stderr, "cluster: %v\n", err)
	return 1
}

// options are the values of the command line that several commands share.
type options struct{ dir string }

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
	root.PersistentFlags().StringVar(&o.dir, "dir", "", "folder of the cluster's data and logs (default vmapd-cluster/c in the user's cache folder)")
	root.AddCommand(newUpCommand(o), newDownCommand(o), newProxyCommand(o), newKubectlCommand(o), newExecCommand(o))
	root.AddCommand(newE2ECommand(o), newTableCommand(), newLifeCommand(o))
	return root
}

// folder returns the folder of the cluster.
func (o *options) folder() (string, error) {
	if o.dir != "" {
		return o.dir, nil
	}
	return kube.DefaultDir()
}

// new returns a cluster that does not run, of released programs in a folder.
func (o *options) new(programs string, nodes int, log *slog.Logger) (*kube.Cluster, error) {
	dir, err := o.folder()
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Config{Name: "c", Dir: dir, KubeDir: programs, Nodes: nodes, Log: log})
}

// open returns the cluster that runs.
func (o *options) open(log *slog.Logger) (*kube.Cluster, error) {
	dir, err := o.folder()
	if err != nil {
		return nil, err
	}
	return kube.Open(dir, log)
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func newUpCommand(o *options) *cobra.Command {
	var programs, proxy string
	var nodes int
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster with a Service proxy and DNS",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := kube.ParseProxy(proxy)
			if err != nil {
				return fmt.Errorf("--proxy: %w", err)
			}
			c, err := o.new(programs, nodes, logTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return up(cmd.Context(), c, p)
		},
	}
	c.Flags().StringVar(&programs, "kube", "", "folder of Kubernetes' released programs")
	c.Flags().IntVar(&nodes, "nodes", 2, "number of nodes")
	c.Flags().StringVar(&proxy, "proxy", kube.Vmapd, "the Service proxy: vmapd or kube-proxy, also with :nftables or :iptables")
	return c
}

// up writes the images, and starts a cluster with a proxy and DNS, or leaves nothing.
func up(ctx context.Context, c *kube.Cluster, p kube.Proxy) error {
	if err := c.Check(); err != nil {
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
			c, err := o.new("", 1, nil) // no program is needed for this
			if err != nil {
				return err
			}
			return c.Down()
		},
	}
}

func newProxyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "proxy PROXY",
		Short: "Replace the Service proxy of a running cluster",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := kube.ParseProxy(args[0])
			if err != nil {
				return err
			}
			c, err := o.open(logTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return c.InstallProxy(cmd.Context(), p)
		},
	}
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
			return become(c.KubectlCommand(cmd.Context(), args...))
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
			return become(c.In(cmd.Context(), args[0], args[1:]...))
		},
	}
}

// become runs a program in the place of this one.
func become(program *exec.Cmd) error {
	if program.Err != nil {
		return program.Err
	}
	return unix.Exec(program.Path, program.Args, program.Environ())
}
