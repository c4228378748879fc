package life

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// Rendering says how vmapd renders the rules to compare with.
type Rendering struct {
	Program  string   // in the folder Work
	Args     []string // configuration; nil: that the pods are in kube.PodRanges
	IPTables bool     // the backend

	// AllAddresses: node ports answer on all addresses of the node, as with kube-proxy's mode
	// iptables. Objects don't have those of bridges to pods, so they are added to the Node.
	AllAddresses bool
}

// renderingOf returns the one of a proxy that Install installed.
func renderingOf(proxy string) Rendering {
	program := "bin/vmapd"
	if proxy == Before {
		program = "before/vmapd"
	}
	return Rendering{Program: program}
}

// Same waits until the table of each node is the one that a version of vmapd renders of the
// objects that kubectl shows, and returns the time that passed.
func (r *Run) Same(ctx context.Context, how Rendering) (time.Duration, error) {
	start := time.Now()
	err := until(ctx, settles, func() error {
		objects, err := r.Kubectl(ctx, "get", "services,endpointslices,nodes,servicecidrs", "-A", "-o", "json")
		if err != nil {
			return err
		}
		var errs []error
		for _, n := range r.Nodes() {
			errs = append(errs, r.same(ctx, how, n, objects))
		}
		return errors.Join(errs...)
	})
	return time.Since(start), err
}

func (r *Run) same(ctx context.Context, how Rendering, node, objects string) error {
	render, read := r.rendered, list
	if how.IPTables {
		render, read = r.renderedIPTables, listIPTables
	}
	if how.AllAddresses {
		var err error
		if objects, err = r.withAddresses(ctx, node, objects); err != nil {
			return fmt.Errorf("add the addresses of %s: %w", node, err)
		}
	}
	file := filepath.Join(r.Work, "objects-of-"+node+".yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		return err
	}
	want, err := render(ctx, how, node, file)
	if err != nil {
		return fmt.Errorf("render the rules of %s: %w", node, err)
	}
	have, err := read(func(args ...string) *exec.Cmd { return r.In(ctx, node, args...) })
	if err != nil {
		return fmt.Errorf("list the rules of %s: %w", node, err)
	}
	if d := Compare(want, have); len(d) > 0 {
		return &differenceError{node, d}
	}
	return nil
}

// render runs vmapd render.
func (r *Run) render(ctx context.Context, how Rendering, node, objects string, more ...string) (string, error) {
	conf := how.Args
	if conf == nil {
		file := filepath.Join(r.Work, "render.conf")
		const text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: " + kube.PodRanges + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		conf = []string{"--config", file}
	}
	args := slices.Concat([]string{filepath.Join(r.Work, how.Program), "render", "-f", objects, "--node-name", node}, conf, more)
	cmd := r.In(ctx, kube.Control, args...)
	var rules, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &rules, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, complaints.String())
	}
	return rules.String(), nil
}

// rendered loads the rendered rules into a new network namespace, and lists them there.
func (r *Run) rendered(ctx context.Context, how Rendering, node, objects string) (Table, error) {
	rules, err := r.render(ctx, how, node, objects)
	if err != nil {
		return nil, err
	}
	scratch, err := lab.NewNamespace("scratch")
	if err != nil {
		return nil, err
	}
	defer func() { _ = scratch.Close() }() // it ends with this process at the latest
	load := scratch.Command(ctx, "nft", "-f", "-")
	load.Stdin = strings.NewReader(rules)
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

// withAddresses adds all addresses of a node to its Node in a list of objects.
func (r *Run) withAddresses(ctx context.Context, node, objects string) (string, error) {
	out, err := r.In(ctx, node, "ip", "-json", "address", "show", "scope", "global").Output()
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	var links []struct {
		AddrInfo []struct{ Local string } `json:"addr_info"`
	}
	var all struct {
		Items []map[string]any `json:"items"`
	}
	if err := errors.Join(json.Unmarshal(out, &links), json.Unmarshal([]byte(objects), &all)); err != nil {
		return "", err
	}
	for _, o := range all.Items {
		meta, _ := o["metadata"].(map[string]any)
		status, _ := o["status"].(map[string]any)
		if o["kind"] != "Node" || meta["name"] != node {
			continue
		}
		addresses, _ := status["addresses"].([]any)
		for _, l := range links {
			for _, a := range l.AddrInfo {
				if a.Local == "" { // of a link without such addresses
					continue
				}
				addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a.Local})
			}
		}
		status["addresses"] = addresses
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all.Items})
	return string(text), err
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
