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
	"path/filepath"

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
	root := newRootCommand()
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

const rootLong = `cluster starts a real Kubernetes on this machine, from released programs, with vmapd or
kube-proxy as its Service proxy: two nodes or more, each with a kubelet, containerd and a
network namespace of its own. It needs root, and Debian's packages containerd, runc and
containernetworking-plugins.

  cluster up --kube DIR        start it; it runs until the command down
  cluster kubectl -- get pods  use it; also its plugin: kubectl -- vmapd --node n1 status
  cluster exec n1 -- nft list ruleset
  cluster down                 end it, and leave nothing but logs and images`

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes on one machine",
		Long:          rootLong,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "vmapd-cluster/c")
	dir := root.PersistentFlags().String("dir", cache, "folder of the cluster's data and logs")
	root.AddCommand(newUpCommand(dir), newLifeCommand(dir))
	root.AddCommand(&cobra.Command{
		Use:   "down",
		Short: "End a cluster, also one that was left behind",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := kube.New(kube.Config{Name: "c", Dir: *dir, Nodes: 1}) // no program is needed for this
			if err != nil {
				return err
			}
			return c.Down()
		},
	}, &cobra.Command{
		Use:   "install PROXY",
		Short: "Make PROXY the Service proxy of all nodes, as for up",
		Args:  cobra.ExactArgs(1),
		RunE: with(dir, func(cmd *cobra.Command, c *kube.Cluster, args []string) error {
			p, err := kube.ParseProxy(args[0])
			if err != nil {
				return err
			}
			return c.InstallProxy(cmd.Context(), p)
		}),
	}, &cobra.Command{
		Use:   "kubectl -- ARG...",
		Short: "Run kubectl, or its plugin vmapd, as administrator of a cluster",
		Args:  cobra.MinimumNArgs(1),
		RunE: with(dir, func(cmd *cobra.Command, c *kube.Cluster, args []string) error {
			return become(c.KubectlCommand(cmd.Context(), args...))
		}),
	}, &cobra.Command{
		Use:   "exec SPACE -- COMMAND [ARG]...",
		Short: "Run a program in a node, or in control or outside",
		Args:  cobra.MinimumNArgs(2),
		RunE: with(dir, func(cmd *cobra.Command, c *kube.Cluster, args []string) error {
			return become(c.In(cmd.Context(), args[0], args[1:]...))
		}),
	})
	return root
}

// with returns what a command does with the cluster that runs.
func with(dir *string, do func(*cobra.Command, *kube.Cluster, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := kube.Open(*dir, logTo(cmd))
		if err != nil {
			return err
		}
		return do(cmd, c, args)
	}
}

func logTo(cmd *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
}

func newUpCommand(dir *string) *cobra.Command {
	conf := kube.Config{Name: "c"}
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
			conf.Dir, conf.Log = *dir, logTo(cmd)
			c, err := kube.New(conf)
			if err != nil {
				return err
			}
			return up(cmd.Context(), c, p)
		},
	}
	c.Flags().StringVar(&conf.KubeDir, "kube", "", "folder of Kubernetes' released programs")
	c.Flags().IntVar(&conf.Nodes, "nodes", 2, "number of nodes")
	c.Flags().StringVar(&proxy, "proxy", kube.Vmapd, "vmapd or kube-proxy, also with :nftables or :iptables")
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

// become runs a program in the place of this one.
func become(program *exec.Cmd) error {
	if program.Err != nil {
		return program.Err
	}
	return unix.Exec(program.Path, program.Args, program.Environ())
}
