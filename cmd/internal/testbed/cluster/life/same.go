package life

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// settles is how long the kernel's table may differ after a step.
const settles = 60 * time.Second

// differenceError is a table that is not the rendered one.
type differenceError struct {
	node  string
	lines []string
}

func (e *differenceError) Error() string {
	const shown = 10
	lines := e.lines[:min(len(e.lines), shown)]
	return fmt.Sprintf("table of %s: %d differences:\n%s", e.node, len(e.lines), strings.Join(lines, "\n"))
}

// Same waits until the table of each node is the one that a version of vmapd renders of the
// objects that kubectl shows, and returns the time that passed.
func (r *Run) Same(ctx context.Context, version string) (time.Duration, error) {
	start := time.Now()
	err := until(ctx, settles, func() error {
		objects, err := r.Kubectl(ctx, "get", "services,endpointslices,nodes,servicecidrs", "-A", "-o", "yaml")
		if err != nil {
			return err
		}
		file := filepath.Join(r.Work, "cluster.yaml")
		if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
			return err
		}
		var errs []error
		program := filepath.Join(r.Work, "bin/vmapd")
		if version == Before {
			program = filepath.Join(r.Work, "before/vmapd")
		}
		for _, n := range r.Nodes() {
			errs = append(errs, r.same(ctx, program, n, file))
		}
		return errors.Join(errs...)
	})
	return time.Since(start), err
}

func (r *Run) same(ctx context.Context, program, node, objects string) error {
	want, err := r.rendered(ctx, program, node, objects)
	if err != nil {
		return fmt.Errorf("render the rules of %s: %w", node, err)
	}
	have, err := list(func(args ...string) *exec.Cmd { return r.In(ctx, node, args...) })
	if err != nil {
		return fmt.Errorf("list the rules of %s: %w", node, err)
	}
	if d := Compare(want, have); len(d) > 0 {
		return &differenceError{node, d}
	}
	return nil
}

// rendered loads the rendered rules into a new network namespace, and lists them there.
func (r *Run) rendered(ctx context.Context, program, node, objects string) (Table, error) {
	render := r.In(ctx, kube.Control, program, "render", "-f", objects, "--node-name", node, "--cluster-cidr", kube.PodRanges)
	var rules, complaints bytes.Buffer
	render.Stdout, render.Stderr = &rules, &complaints
	if err := render.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaints.String())
	}
	scratch, err := lab.NewNamespace("scratch")
	if err != nil {
		return nil, err
	}
	defer func() { _ = scratch.Close() }() // it ends with this process at the latest
	load := scratch.Command(ctx, "nft", "-f", "-")
	load.Stdin = &rules
	if out, err := load.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load the rendered rules: %w: %s", err, out)
	}
	var table Table
	err = scratch.Do(func() error {
		table, err = list(func(args ...string) *exec.Cmd { return exec.CommandContext(ctx, args[0], args[1:]...) })
		return err
	})
	return table, err
}

// list returns vmapd's tables of both families, where commands run.
func list(command func(args ...string) *exec.Cmd) (Table, error) {
	var both Table
	for _, family := range []string{"ip", "ip6"} {
		out, err := command("nft", "-j", "list", "table", family, "vmapd").Output()
		if err != nil {
			return nil, fmt.Errorf("list table %s vmapd: %w", family, err)
		}
		t, err := ParseTable(out)
		if err != nil {
			return nil, err
		}
		both = append(both, t...)
	}
	return both, nil
}
