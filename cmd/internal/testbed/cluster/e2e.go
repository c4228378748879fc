package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/e2e"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

const e2eLong = `e2e makes PROXY the Service proxy of a running cluster, runs those of Kubernetes' own tests that
have no result yet, and adds their results to a file of --runs. Tests that need more nodes than there
are, are left out. It can be called again and again until nothing is left; "cluster table" makes a page of the files.`

func newE2ECommand(dir *string) *cobra.Command {
	runner := e2e.Runner{Processes: 6, Group: 4, Limit: 6 * time.Minute}
	var runs, focus string
	c := &cobra.Command{
		Use:   "e2e PROXY",
		Short: "Run Kubernetes' own tests of Services",
		Long:  e2eLong,
		Args:  cobra.ExactArgs(1),
		RunE: with(dir, func(cmd *cobra.Command, c *kube.Cluster, args []string) error {
			p, err := kube.ParseProxy(args[0])
			if err != nil {
				return err
			}
			wanted, err := regexp.Compile(focus)
			if err != nil {
				return fmt.Errorf("--focus: %w", err)
			}
			runner.Dir = filepath.Join(runs, strings.ReplaceAll(p.String(), ":", "-"))
			all := slices.DeleteFunc(e2e.Tests(), func(t e2e.Test) bool {
				return !wanted.MatchString(t.Name) || t.Nodes > len(c.Nodes())
			})
			left, err := runE2E(cmd.Context(), c, p, all, &runner)
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%d tests are left\n", left)
			}
			return err
		}),
	}
	c.Flags().StringVar(&runs, "runs", "bin/e2e", "folder of results and logs")
	c.Flags().StringVar(&focus, "focus", "", "`pattern` of the names of tests; the default are all")
	c.Flags().IntVar(&runner.Processes, "processes", runner.Processes, "how many processes of tests run at the same time")
	c.Flags().DurationVar(&runner.Budget, "budget", 24*time.Hour, "time after which no test is started")
	c.Flags().BoolVar(&runner.Again, "again", false, "also run those that failed or were skipped")
	return c
}

func runE2E(ctx context.Context, c *kube.Cluster, p kube.Proxy, all []e2e.Test, runner *e2e.Runner) (int, error) {
	run, err := e2e.LoadRun(runner.File())
	if err != nil {
		return 0, err
	}
	if err := errors.Join(describe(ctx, c, p, run), prepareE2E(ctx, c)); err != nil {
		return 0, err
	}
	if err := c.InstallProxy(ctx, p); err != nil {
		return 0, err
	}
	balancer := e2e.Balancer{
		Log: c.Log, Client: testClient, Kubectl: c.Kubectl,
		Run: func(ctx context.Context, args ...string) (string, error) {
			return kube.Output(c.In(ctx, kube.Control, args...))
		},
	}
	for _, n := range c.Nodes() {
		v4, _ := kube.Addresses(n)
		balancer.Nodes = append(balancer.Nodes, v4)
	}
	balancing, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { balancer.Balance(balancing) })
	defer func() { stop(); done.Wait() }()
	runner.Log = c.Log
	runner.Command = func(ctx context.Context, args ...string) *exec.Cmd {
		return c.In(ctx, kube.Control, append([]string{
			filepath.Join(c.KubeDir, testsProgram), "--provider=skeleton", "--kubeconfig=" + c.Kubeconfig(),
			"--kubectl-path=" + filepath.Join(c.KubeDir, "kubectl"), "--disable-log-dump", "--dns-domain=" + kube.ClusterDomain,
		}, args...)...)
	}
	return runner.Run(ctx, run, all)
}

// describe fills in from what the results of a run are. A run can't be continued with another
// vmapd.
func describe(ctx context.Context, c *kube.Cluster, p kube.Proxy, run *e2e.Run) error {
	commit := ""
	if p.Program == kube.Vmapd {
		source, err := os.ReadFile(c.Source())
		if err != nil {
			return fmt.Errorf("find out the commit of vmapd's image: %w", err)
		}
		commit = strings.TrimSpace(string(source))
	}
	if len(run.Results) > 0 && run.Commit != commit {
		return fmt.Errorf("the results of %s are from %s, and the image is from %s: use another folder (--runs)",
			run.Proxy, run.Commit, commit)
	}
	run.Proxy, run.Commit, run.Nodes = strings.ReplaceAll(p.String(), ":", " "), commit, len(c.Nodes())
	const versions = "jsonpath={.items[0].status.nodeInfo.kubeletVersion} {.items[0].status.nodeInfo.kernelVersion}"
	out, err := c.Kubectl(ctx, "get", "nodes", "-o", versions)
	if err == nil {
		_, err = fmt.Sscan(out, &run.Kubernetes, &run.Kernel)
	}
	return err
}

// testClient is the address from which tests use load balancers. Some of them want one that is in
// no network of the nodes.
const testClient = "203.0.113.10"

// prepareE2E gives each node one of three zones, and the tests their address. Connections of a client are to reach
// several nodes.
func prepareE2E(ctx context.Context, c *kube.Cluster) error {
	control, _ := kube.Addresses(kube.Control)
	commands := []*exec.Cmd{
		c.In(ctx, kube.Control, "ip", "address", "replace", testClient+"/32", "dev", "eth0"),
		c.In(ctx, kube.Control, "sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1"),
	}
	for i, node := range c.Nodes() {
		zone := fmt.Sprintf("topology.kubernetes.io/zone=zone-%d", i%3+1)
		commands = append(commands,
			c.KubectlCommand(ctx, "label", "--overwrite", "node", node, zone),
			c.In(ctx, node, "ip", "route", "replace", testClient, "via", control.String()))
	}
	for _, cmd := range commands {
		if err := kube.Run(cmd); err != nil {
			return err
		}
	}
	return nil
}

func newTableCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "table RUN.json...",
		Short: "Print a table of the results of tests; fail if kube-proxy passes one that vmapd does not",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := e2e.Tests()
			var runs []*e2e.Run
			for _, name := range args {
				run, err := e2e.LoadRun(name)
				if err != nil {
					return err
				}
				runs = append(runs, run)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s", e2e.Table(all, runs))
			if behind := e2e.Behind(all, runs); len(behind) > 0 {
				return fmt.Errorf("kube-proxy passes more: %s", strings.Join(behind, "; "))
			}
			return nil
		},
	}
}
