package life

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// The proxies that a step can begin with.
const (
	VMAPD  = kube.Vmapd
	Before = "vmapd before"
	// KubeProxy is followed by a mode.
	KubeProxy = kube.KubeProxy + ":"
)

// Step is something that happens to a cluster.
type Step struct {
	Name  string
	From  string // proxy that the step begins with; if empty, the one that the run is about
	Until string // proxy that serves after it; if empty, the same
	Do    Action
}

// Run takes a cluster through steps.
type Run struct {
	*kube.Cluster
	Proxy string // the proxy that the run is about: vmapd, or kube-proxy:MODE

	// Work is the folder where commands of pages run: it has cmd/vmapd/deploy, bin/vmapd, and the
	// program and the manifest of the version before in the folder before.
	Work string

	installed string // the proxy that serves, if it is known
}

// Result is the outcome of a step with a proxy.
type Result struct {
	Step, Proxy string
	Counts      []Count
	Rules       string // whether those in the kernel are as they should be
	Failure     error  // of the step or the rules
}

const settle = 3 * time.Second // of traffic before and after a step

// Step does one step under traffic.
func (r *Run) Step(ctx context.Context, s Step) (*Result, error) {
	from := cmp.Or(s.From, r.Proxy)
	if err := r.Install(ctx, from); err != nil {
		return nil, fmt.Errorf("install %s: %w", from, err)
	}
	routes, err := r.startWorkload(ctx)
	if err != nil {
		return nil, fmt.Errorf("make pods and Services: %w", err)
	}
	defer func() {
		for _, route := range routes {
			_ = route.From.Close() // several routes may begin in one namespace
		}
	}()
	if err := r.served(ctx, routes); err != nil {
		return nil, fmt.Errorf("connect before the step: %w", err)
	}
	r.Log.Info("step", slog.String("name", s.Name), slog.String("proxy", r.Proxy))
	result := &Result{Step: s.Name, Proxy: r.Proxy}
	clients := startClients(ctx, routes)
	_ = lab.Pause(ctx, settle)
	r.installed = ""
	until := cmp.Or(s.Until, from)
	if result.Failure = s.Do(ctx, r); result.Failure != nil {
		result.Rules = "the step failed"
	} else if result.Rules, result.Failure = r.rules(ctx, until, s.Until != ""); result.Failure != nil {
		result.Rules = "no"
	}
	_ = lab.Pause(ctx, settle)
	alive, err := r.alive(ctx)
	result.Counts = count(clients.Stop(), alive)
	if err != nil {
		return nil, err
	}
	if result.Failure != nil {
		return result, nil
	}
	r.installed = until
	return result, nil
}

// rules waits until the rules on all nodes are those of a proxy, and says so. Before kube-proxy, another one may have
// served.
func (r *Run) rules(ctx context.Context, proxy string, isOther bool) (string, error) {
	program := "bin/vmapd"
	switch {
	case strings.HasPrefix(proxy, KubeProxy) && !isOther:
		return "removed", nil
	case strings.HasPrefix(proxy, KubeProxy):
		return "removed", r.NoTables(ctx)
	case proxy == Before:
		program = "before/vmapd"
	}
	passed, err := r.Same(ctx, program)
	return "yes, after " + passed.Round(100*time.Millisecond).String(), err
}

// served waits until each route works.
func (r *Run) served(ctx context.Context, routes []lab.Path) error {
	return kube.Until(ctx, time.Minute, "connect", func() error {
		var errs []error
		for _, route := range routes {
			if _, err := route.From.Ask(ctx, route.Network, route.To); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", route.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// alive returns whether a pod of the workload is neither gone nor about to end.
func (r *Run) alive(ctx context.Context) (func(string) bool, error) {
	const each = `{range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`
	out, err := r.Kubectl(ctx, "-n", "life", "get", "pods", "-o", "jsonpath="+each)
	living := map[string]bool{}
	for line := range strings.Lines(out) {
		if name, deleted, _ := strings.Cut(strings.TrimSpace(line), " "); deleted == "" {
			living[name] = true
		}
	}
	return func(pod string) bool { return living[pod] }, err
}

// NoTables returns an error if something of vmapd is left on a node.
func (r *Run) NoTables(ctx context.Context) error {
	for _, n := range r.Nodes() {
		out, err := r.Shell(ctx, n, "nft list tables; iptables-save; ip6tables-save")
		if err != nil {
			return err
		}
		if strings.Contains(out, "vmapd") || strings.Contains(out, "VMAPD") {
			return fmt.Errorf("rules of vmapd are left on %s:\n%s", n, out)
		}
	}
	return nil
}
