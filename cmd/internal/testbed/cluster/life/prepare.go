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
	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
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

// Prepare builds vmapd of this checkout and of an earlier commit, and brings their images to the
// nodes. It must be called in the root of the repository.
func (r *Run) Prepare(ctx context.Context, commit string) error {
	source := filepath.Join(r.Work, "source-before")
	const unpack = `rm -rf "$2"; mkdir -p "$2"; git archive "$1" | tar -x -C "$2"`
	if err := command(ctx, ".", "bash", "-euo", "pipefail", "-c", unpack, "bash", commit, source); err != nil {
		return err
	}
	before := filepath.Join(r.Work, "before")
	if err := os.MkdirAll(before, 0o755); err != nil {
		return err
	}
	for _, b := range []struct{ in, to, what string }{
		{".", filepath.Join(r.Work, "bin/vmapd"), "./cmd/vmapd"},
		{source, filepath.Join(before, "vmapd"), "./cmd/vmapd"},
		{".", filepath.Join(r.Work, "bin/podserver"), "./cmd/internal/testbed/cluster/podserver"},
	} {
		if err := command(ctx, b.in, "go", "build", "-trimpath", "-o", b.to, b.what); err != nil {
			return err
		}
	}
	manifest, err := os.ReadFile(filepath.Join(source, deploy, "vmapd.yaml"))
	if err != nil {
		return fmt.Errorf("read the manifest of %s: %w", commit, err)
	}
	if err := os.WriteFile(filepath.Join(before, "vmapd.yaml"), manifest, 0o600); err != nil {
		return err
	}
	const names = `git describe --always --abbrev=10 --exclude '*' --dirty=" with changes" > "$1"; git rev-parse --short=10 "$3^{commit}" > "$2"`
	if err := command(ctx, ".", "bash", "-euo", "pipefail", "-c", names, "bash", r.commitFile(VMAPD), r.commitFile(Before), commit); err != nil {
		return err
	}
	return r.loadImages(ctx)
}

// commitFile has the name of a commit that Prepare built.
func (r *Run) commitFile(proxy string) string { return filepath.Join(r.Work, "commit of "+proxy) }

// commits names the commits of vmapd that take part in a step.
func (r *Run) commits(s Step) string {
	read := func(proxy string) string {
		name, _ := os.ReadFile(r.commitFile(proxy)) // without Prepare, it is unknown
		return strings.TrimSpace(string(name))
	}
	if s.From == Before {
		return read(Before) + " to " + read(VMAPD)
	}
	return read(VMAPD)
}

func command(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return kube.Run(cmd)
}

// loadImages brings the images to all nodes that the cluster does not have by itself. Nodes that
// join later get none.
func (r *Run) loadImages(ctx context.Context) error {
	user, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a folder for packages: %w", err)
	}
	cache := debian.Cache{Dir: filepath.Join(user, "vmapd-vm")}
	for _, i := range []image.Image{
		image.VmapdImage("vmapd-now", kube.VmapdImage, filepath.Join(r.Work, "bin/vmapd")),
		image.VmapdImage("vmapd-before", BeforeImage, filepath.Join(r.Work, "before/vmapd")),
		{
			Name: "podserver", Tags: []string{PodImage}, Entrypoint: []string{"/podserver"},
			Programs: map[string]string{"/podserver": filepath.Join(r.Work, "bin/podserver")},
		},
	} {
		archive, err := i.Save(ctx, cache, r.Work)
		if err != nil {
			return err
		}
		for _, n := range r.Nodes() {
			if err := r.LoadImages(ctx, n, archive); err != nil {
				return err
			}
		}
	}
	return nil
}
