package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// settles is how long the kernel's table may differ after a step.
const settles = 60 * time.Second

// Same waits until the table of each node is the one that a program in the folder Work, a version of vmapd,
// renders of the objects that kubectl shows, and returns the time that passed.
func (r *Run) Same(ctx context.Context, program string) (time.Duration, error) {
	start := time.Now()
	err := kube.Until(ctx, settles, "compare the rules", func() error {
		objects, err := r.Kubectl(ctx, "get", "services,endpointslices,nodes,servicecidrs", "-A", "-o", "json")
		if err != nil {
			return err
		}
		var errs []error
		for _, n := range r.Nodes() {
			errs = append(errs, r.same(ctx, program, n, objects))
		}
		return errors.Join(errs...)
	})
	return time.Since(start), err
}

func (r *Run) same(ctx context.Context, program string, node, objects string) error {
	file := filepath.Join(r.Work, "objects-of-"+node+".yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		return err
	}
	for family, table := range map[string]string{"ipv4": "ip", "ipv6": "ip6"} {
		list := "nft -j list table " + table + " vmapd"
		render := fmt.Sprintf("%s render -f %s --node-name %s --ip-family %s --config %s | nft -f -\n%s",
			filepath.Join(r.Work, program), file, node, family, filepath.Join(r.Work, "render.conf"), list)
		var tables [2]Table // rendered, in the kernel
		for i, cmd := range []*exec.Cmd{
			r.In(ctx, kube.Control, "unshare", "--net", "bash", "-euo", "pipefail", "-c", render),
			r.In(ctx, node, "bash", "-c", list),
		} {
			out, err := kube.Output(cmd)
			if err == nil {
				tables[i], err = ParseTable(out)
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
