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
const settles = 2 * time.Minute

// Same waits until the table of each node is the one that a program in the folder Work, a version of vmapd,
// renders of the objects that kubectl shows, and returns the time that passed.
func (r *Run) Same(ctx context.Context, program string) (time.Duration, error) {
	start := time.Now()
	err := kube.Until(ctx, settles, "compare the rules", func() error {
		objects, err := r.Kubectl(ctx, "get", "services,endpointslices,nodes,servicecidrs", "-A", "-o", "json")
		if err == nil {
			err = os.WriteFile(filepath.Join(r.Work, "objects.yaml"), []byte(objects), 0o600)
		}
		for _, n := range r.Nodes() {
			err = errors.Join(err, r.same(ctx, program, n))
		}
		return err
	})
	return time.Since(start), err
}

func (r *Run) same(ctx context.Context, program, node string) error {
	for family, table := range map[string]string{"ipv4": "ip", "ipv6": "ip6"} {
		list := "nft -j list table " + table + " vmapd | jq -cS -f table.jq | sort >"
		render := fmt.Sprintf("%s render -f objects.yaml --node-name %s --ip-family %s --config render.conf | nft -f -\n%s",
			program, node, family, list)
		for _, cmd := range []*exec.Cmd{
			r.In(ctx, kube.Control, "unshare", "--net", "bash", "-euo", "pipefail", "-c", "cd "+r.Work+"\n"+render+"rendered"),
			r.In(ctx, node, "bash", "-euo", "pipefail", "-c", "cd "+r.Work+"\n"+list+"kernel"),
		} {
			if err := kube.Run(cmd); err != nil {
				return fmt.Errorf("rules of %s: %w", node, err)
			}
		}
		diff := exec.CommandContext(ctx, "diff", "rendered", "kernel")
		diff.Dir = r.Work
		if out, err := diff.Output(); err != nil {
			const shown = 20
			lines := strings.SplitAfter(string(out), "\n")
			return fmt.Errorf("%s rules of %s differ (<: rendered, >: in the kernel): %w\n%s",
				family, node, err, strings.Join(lines[:min(len(lines), shown)], ""))
		}
	}
	return nil
}
