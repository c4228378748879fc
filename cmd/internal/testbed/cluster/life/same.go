package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// settles is how long the kernel's table may differ after a step.
const settles = 60 * time.Second

// Rendering says how vmapd renders the rules to compare with.
type Rendering struct {
	Program  string // in the folder Work
	Args     string // configuration
	IPTables bool   // the backend

	// AllAddresses: node ports answer on all addresses of the node, as with kube-proxy's mode
	// iptables. Objects don't have those of bridges to pods, so they are added to the Node.
	AllAddresses bool
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
	for _, family := range []string{"ipv4", "ipv6"} {
		load, list, parse := how.commands(family)
		render := fmt.Sprintf("%s render -f %s --node-name %s --ip-family %s %s | %s\n%s",
			filepath.Join(r.Work, how.Program), file, node, family, how.Args, load, list)
		var tables [2]Table // rendered, in the kernel
		for i, cmd := range []*exec.Cmd{
			r.In(ctx, kube.Control, "unshare", "--net", "bash", "-euo", "pipefail", "-c", render),
			r.In(ctx, node, "bash", "-c", list),
		} {
			out, err := kube.Output(cmd)
			if err == nil {
				tables[i], err = parse(family, out)
			}
			if err != nil {
				return fmt.Errorf("rules of %s: %w", node, err)
			}
		}
		if d := Compare(tables[0], tables[1]); len(d) > 0 {
			const shown = 10
			return fmt.Errorf("%s rules of %s: %d differences:\n%s", family, node, len(d), strings.Join(d[:min(len(d), shown)], "\n"))
		}
	}
	return nil
}

// commands are those that load and list the rules of a family, and the function that reads the list.
func (how Rendering) commands(family string) (load, list string, parse func(family, listing string) (Table, error)) {
	six := map[string]string{"ipv4": "", "ipv6": "6"}[family]
	if how.IPTables {
		return "ip" + six + "tables-restore --noflush", "ip" + six + "tables-save", ParseIPTables
	}
	return "nft -f -", "nft -j list table ip" + six + " vmapd", ParseTable
}

// withAddresses adds all addresses of a node to its Node in a list of objects.
func (r *Run) withAddresses(ctx context.Context, node, objects string) (string, error) {
	out, err := kube.Output(r.In(ctx, node, "ip", "-o", "address", "show", "scope", "global"))
	if err != nil {
		return "", err
	}
	var all unstructured.UnstructuredList
	if err := all.UnmarshalJSON([]byte(objects)); err != nil {
		return "", err
	}
	for _, o := range all.Items {
		if o.GetKind() != "Node" || o.GetName() != node {
			continue
		}
		addresses, _, err := unstructured.NestedSlice(o.Object, "status", "addresses")
		if err != nil {
			return "", err
		}
		for _, m := range regexp.MustCompile(`inet6? (\S+)/`).FindAllStringSubmatch(out, -1) {
			addresses = append(addresses, map[string]any{"type": "InternalIP", "address": m[1]})
		}
		if err := unstructured.SetNestedSlice(o.Object, addresses, "status", "addresses"); err != nil {
			return "", err
		}
	}
	text, err := all.MarshalJSON()
	return string(text), err
}
