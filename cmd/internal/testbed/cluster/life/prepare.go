package life

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/image"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// New returns the steps' run in a cluster. proxy is the one that the run is about, manifests the
// folder of vmapd's, and results the folder for results.
func New(c *kube.Cluster, proxy, manifests, results string) (*Run, error) {
	r := &Run{Cluster: c, Proxy: proxy, Results: results, Deploy: manifests, Work: filepath.Join(c.Dir, "life")}
	text, err := os.ReadFile(filepath.Join(manifests, "FROM-KUBE-PROXY.md"))
	if err != nil {
		return nil, fmt.Errorf("read the page that steps follow: %w", err)
	}
	r.Page = ParsePage(string(text))
	return r, r.prepareFolder()
}

// Prepare builds vmapd of an earlier commit, and brings its image to the nodes. It must be called in the repository.
func (r *Run) Prepare(ctx context.Context, commit string) error {
	before := filepath.Join(r.Work, "before")
	source := filepath.Join(before, "source")
	const unpack = `rm -rf "$2"; mkdir -p "$3"; git archive "$1" | tar -x -C "$3"; cp "$3/$4/vmapd.yaml" "$2"
git rev-parse --short=10 "$1^{commit}" > "$2/commit"`
	if err := kube.Run(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", unpack, "bash", commit, before, source, deploy)); err != nil {
		return err
	}
	if err := image.Build(ctx, source, before, "./cmd/vmapd"); err != nil {
		return err
	}
	archive, err := image.VmapdImage("vmapd-before", BeforeImage, filepath.Join(before, "vmapd")).Save(ctx, r.Work)
	if err != nil {
		return err
	}
	for _, n := range r.Nodes() {
		if err := r.LoadImages(ctx, n, archive); err != nil {
			return err
		}
	}
	return nil
}

// commits names the commits of vmapd that take part in a step.
func (r *Run) commits(s Step) string {
	now, _ := os.ReadFile(r.Source()) // without it, the commit is unknown
	name := strings.TrimSpace(string(now))
	if s.From == Before {
		before, _ := os.ReadFile(filepath.Join(r.Work, "before/commit"))
		return strings.TrimSpace(string(before)) + " to " + name
	}
	return name
}
