// Command cluster starts a real Kubernetes on this machine, from released programs, with vmapd or
// kube-proxy as its Service proxy. Package kube has the cluster; its documentation has a picture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

const usage = `cluster starts a real Kubernetes on this machine, from released programs, with vmapd or
kube-proxy as its Service proxy: two nodes or more, each with a kubelet, containerd and a
network namespace of its own. It needs root, and Debian's packages containerd, runc and
containernetworking-plugins. PROXY is vmapd or kube-proxy, also with :nftables or :iptables.

  cluster up --kube DIR [--nodes N] [--proxy PROXY]
                               start it, with DNS; it runs until the command down
  cluster install PROXY        make PROXY the Service proxy of all nodes
  cluster kubectl -- get pods  use it; also its plugin: kubectl -- vmapd --node n1 status
  cluster exec n1 -- nft list ruleset
                               run a program in a node, or in control or outside
  cluster life [--before v1.2] [--steps PATTERN] [--proxy PROXY]
                               take it through upgrades, exchange of the proxy as
                               docs/from-kube-proxy.md describes it, drains, an API server that
                               is away, and more; meanwhile clients connect to Services, and
                               those that fail are counted. A PROXY of kube-proxy is to compare
                               with. Run it in the root of the repository.
  cluster down                 end it, and leave nothing but logs and images
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	// The cluster outlives this program: its processes must not inherit the caller's files, such as a lock.
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		err = run(ctx, os.Args[1:])
	}
	if ctx.Err() != nil { // programs were killed, so their errors are not the cause
		err = context.Cause(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage:\n" + strings.TrimSpace(usage))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	dir := filepath.Join(cache, "vmapd-cluster/c")
	flags := flag.NewFlagSet("cluster "+args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	conf := kube.Config{Dir: dir, Log: log, Nodes: 2}
	proxy := flags.String("proxy", kube.Vmapd, "")
	flags.StringVar(&conf.KubeDir, "kube", "", "")
	flags.IntVar(&conf.Nodes, "nodes", conf.Nodes, "")
	before, steps := flags.String("before", "HEAD^", ""), flags.String("steps", "", "")
	rest := args[1:]
	if args[0] != "kubectl" && args[0] != "exec" && args[0] != "install" {
		if err := flags.Parse(rest); err != nil || flags.NArg() > 0 {
			return errors.Join(err, fmt.Errorf("%s takes no arguments but flags", args[0]))
		}
	}
	switch args[0] {
	case "up":
		p, err := kube.ParseProxy(*proxy)
		if err != nil {
			return fmt.Errorf("--proxy: %w", err)
		}
		c, err := kube.New(conf)
		if err != nil {
			return err
		}
		return up(ctx, c, p)
	case "down":
		c, err := kube.New(conf) // no program is needed for this
		if err != nil {
			return err
		}
		return c.Down()
	}
	c, err := kube.Open(dir, log)
	switch {
	case err != nil:
		return err
	case args[0] == "life":
		return runLife(ctx, c, *proxy, *before, *steps)
	case args[0] == "install" && len(rest) == 1:
		p, err := kube.ParseProxy(rest[0])
		if err != nil {
			return err
		}
		return c.InstallProxy(ctx, p)
	case args[0] == "kubectl" && len(rest) > 1 && rest[0] == "--":
		return become(c.KubectlCommand(ctx, rest[1:]...))
	case args[0] == "exec" && len(rest) > 2 && rest[1] == "--":
		return become(c.In(ctx, rest[0], rest[2:]...))
	}
	return errors.New("usage:\n" + strings.TrimSpace(usage))
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
