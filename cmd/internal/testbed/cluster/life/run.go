package life

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
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
	Name string

	// From is the proxy that the step begins with; if empty, the one that the run is about.
	From string
	// Until is the proxy that serves after it; if empty, the same.
	Until string

	// Prepare, if not nil, comes before the traffic.
	Prepare Action

	Do Action

	// After, if not nil, comes after the traffic.
	After Action
}

// Run takes a cluster through steps.
type Run struct {
	*kube.Cluster
	Proxy   string // the proxy that the run is about: vmapd, or kube-proxy:MODE
	Page    Page   // FROM-KUBE-PROXY.md
	Results string // folder of the results, a file for each step

	// Work is the folder where commands of pages run: it has a copy of cmd/vmapd/deploy, bin/vmapd, and the
	// program and the manifest of the version before in the folder before.
	Work string

	Deploy string // the folder of vmapd's manifests in the checkout
}

// Result is the outcome of a step with a proxy.
type Result struct {
	Step, Proxy string
	Commit      string // of vmapd
	Took        time.Duration
	Counts      []Count
	Error       string        // of the step
	Same        time.Duration // until the tables were equal
	Different   string        // why they are not
	Compared    bool          // vmapd serves
}

const settle = 3 * time.Second // of traffic before and after a step

// Step does one step under traffic, and writes the result.
func (r *Run) Step(ctx context.Context, s Step) (*Result, error) {
	from := s.From
	if from == "" {
		from = r.Proxy
	}
	if err := r.Install(ctx, from); err != nil {
		return nil, fmt.Errorf("install %s: %w", from, err)
	}
	if s.Prepare != nil {
		if err := s.Prepare(ctx, r); err != nil {
			return nil, fmt.Errorf("prepare the step: %w", err)
		}
	}
	routes, err := r.startWorkload(ctx)
	if err != nil {
		return nil, fmt.Errorf("make pods and Services: %w", err)
	}
	defer closeAll(routes)
	if err := r.served(ctx, routes); err != nil {
		return nil, fmt.Errorf("connect before the step: %w", err)
	}
	r.Log.Info("step", slog.String("name", s.Name), slog.String("proxy", r.Proxy))
	result := &Result{Step: s.Name, Proxy: r.Proxy, Commit: r.commits(s)}
	traffic := StartTraffic(ctx, routes)
	wait(ctx, settle)
	start := time.Now()
	if err := s.Do(ctx, r); err != nil {
		result.Error = err.Error()
	}
	result.Took = time.Since(start)
	until := s.Until
	if until == "" {
		until = from
	}
	if result.Compared = !strings.HasPrefix(until, KubeProxy); result.Compared {
		if result.Same, err = r.Same(ctx, renderingOf(until)); err != nil {
			result.Different = err.Error()
		}
	} else if err := r.NoTables(ctx); err != nil && s.Until != "" {
		result.Different = err.Error()
	}
	wait(ctx, settle)
	alive, err := r.alive(ctx)
	result.Counts = traffic.Stop(alive)
	if err != nil {
		return nil, err
	}
	if err := r.write(result); err != nil || s.After == nil {
		return result, err
	}
	return result, s.After(ctx, r)
}

func closeAll(routes []Route) {
	for _, route := range routes {
		_ = route.From.Close() // several routes may begin in one namespace
	}
}

// served waits until each route works.
func (r *Run) served(ctx context.Context, routes []Route) error {
	return kube.Until(ctx, time.Minute, "connect", func() error {
		var errs []error
		for _, route := range routes {
			_, err := route.From.Ask(ctx, route.Network, route.To)
			if err != nil {
				err = fmt.Errorf("%s: %w", route.Name, err)
			}
			errs = append(errs, err)
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

func (r *Run) write(result *Result) error {
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return fmt.Errorf("write the result of %q: %w", result.Step, err)
	}
	if err := os.MkdirAll(r.Results, 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.file(result.Step), append(text, '\n'), 0o644)
}

// file is where the result of a step is.
func (r *Run) file(step string) string {
	safe := strings.NewReplacer(" ", "-", ":", "-", "/", "-", ",", "", "(", "", ")", "", "'", "")
	return filepath.Join(r.Results, safe.Replace(r.Proxy+"--"+step)+".json")
}
