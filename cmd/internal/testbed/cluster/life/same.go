package life

import (
	"context"
	"encoding/json"
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
	err := kube.Until(ctx, settles, "compare the rules", func() error {
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
	scratch, err := lab.NewNamespace("scratch")
	if err != nil {
		return err
	}
	defer func() { _ = scratch.Close() }() // it ends with this process at the latest
	var want, have Table
	for _, p := range how.parts() {
		rules, err := r.render(ctx, how, node, file, p.family)
		if err != nil {
			return err
		}
		err = scratch.Do(func() error {
			load := exec.CommandContext(ctx, p.load[0], p.load[1:]...)
			load.Stdin = strings.NewReader(rules)
			if err := kube.Run(load); err != nil {
				return err
			}
			return p.read(&want, exec.CommandContext(ctx, p.list[0], p.list[1:]...))
		})
		if err := errors.Join(err, p.read(&have, r.In(ctx, node, p.list...))); err != nil {
			return fmt.Errorf("rules of %s: %w", node, err)
		}
	}
	if d := Compare(want, have); len(d) > 0 {
		return &differenceError{node, d}
	}
	return nil
}

// part is the rules of one IP family: how they are loaded and listed.
type part struct {
	family     string
	load, list []string
	parse      func(family, listing string) (Table, error)
}

func (how Rendering) parts() []part {
	if how.IPTables {
		return []part{
			{"ipv4", []string{"iptables-restore", "--noflush"}, []string{"iptables-save"}, ParseIPTables},
			{"ipv6", []string{"ip6tables-restore", "--noflush"}, []string{"ip6tables-save"}, ParseIPTables},
		}
	}
	load := []string{"nft", "-f", "-"}
	return []part{
		{"ipv4", load, []string{"nft", "-j", "list", "table", "ip", "vmapd"}, ParseTable},
		{"ipv6", load, []string{"nft", "-j", "list", "table", "ip6", "vmapd"}, ParseTable},
	}
}

// read adds what a command lists to a table.
func (p part) read(t *Table, list *exec.Cmd) error {
	out, err := kube.Output(list)
	if err != nil {
		return err
	}
	lines, err := p.parse(p.family, out)
	*t = append(*t, lines...)
	return err
}

// render runs vmapd render.
func (r *Run) render(ctx context.Context, how Rendering, node, objects, family string) (string, error) {
	conf := how.Args
	if conf == nil {
		file := filepath.Join(r.Work, "render.conf")
		const text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: " + kube.PodRanges + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		conf = []string{"--config", file}
	}
	args := []string{filepath.Join(r.Work, how.Program), "render", "-f", objects, "--node-name", node, "--ip-family", family}
	return kube.Output(r.In(ctx, kube.Control, append(args, conf...)...))
}

// withAddresses adds all addresses of a node to its Node in a list of objects.
func (r *Run) withAddresses(ctx context.Context, node, objects string) (string, error) {
	out, err := kube.Output(r.In(ctx, node, "ip", "-json", "address", "show", "scope", "global"))
	if err != nil {
		return "", err
	}
	var links []struct {
		AddrInfo []struct{ Local string } `json:"addr_info"`
	}
	var all struct {
		Items []map[string]any `json:"items"`
	}
	if err := errors.Join(json.Unmarshal([]byte(out), &links), json.Unmarshal([]byte(objects), &all)); err != nil {
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
