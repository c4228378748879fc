package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

const installLong = `install brings a release to a running cluster, from its files alone and by the commands of
INSTALL.md: images from the OCI layout into each node, objects from the Helm chart. It then
checks that Services work, that the kernel has the rules that the released program renders,
and what the plugin of kubectl says. Any other Service proxy is removed before.

  cluster up --kube DIR --proxy none
  cluster install --release bin/release --helm bin/helm`

// installed is the section of INSTALL.md whose commands install runs.
const installed = "From the released files"

func newInstallCommand(o *options) *cobra.Command {
	var release, helm string
	c := &cobra.Command{
		Use:   "install",
		Short: "Install a release in a running cluster, from its files alone",
		Long:  installLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.open(logTo(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			i, err := newInstallation(c, o.deploy, release, helm, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return i.run(cmd.Context())
		},
	}
	o.addProxyFlags(c)
	c.Flags().StringVar(&release, "release", "bin/release", "folder of the released files")
	c.Flags().StringVar(&helm, "helm", "helm", "the program helm")
	return c
}

// installation is a machine with the released files, kubectl and helm only: the run's folder Work.
type installation struct {
	*life.Run
	out io.Writer
}

func newInstallation(c *kube.Cluster, deploy, release, helm string, out io.Writer) (*installation, error) {
	text, err := os.ReadFile(filepath.Join(deploy, "INSTALL.md"))
	if err != nil {
		return nil, fmt.Errorf("read the page to follow: %w", err)
	}
	i := &installation{&life.Run{Cluster: c, Page: life.ParsePage(string(text)), Work: filepath.Join(c.Dir, "install")}, out}
	if err := os.RemoveAll(i.Work); err != nil {
		return nil, err
	}
	if err := os.CopyFS(i.Work, os.DirFS(release)); err != nil {
		return nil, fmt.Errorf("copy the release (make images): %w", err)
	}
	values, err := valuesOf(string(text))
	if err != nil {
		return nil, err
	}
	kubeconfig, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"values.yaml": values, ".kube/config": kubeconfig} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(i.Work, name)), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(i.Work, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	if helm, err = filepath.Abs(helm); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(i.Work, "bin"), 0o755); err != nil {
		return nil, err
	}
	return i, os.Symlink(helm, filepath.Join(i.Work, "bin/helm"))
}

// valuesOf returns the page's values for a released chart, with everything filled in.
func valuesOf(page string) ([]byte, error) {
	found := regexp.MustCompile("(?s)```yaml\n# values-released.yaml\n(.*?)```").FindStringSubmatch(page)
	if found == nil {
		return nil, errors.New("INSTALL.md has no values-released.yaml")
	}
	values := found[1]
	for _, r := range [][2]string{
		{"https://control-plane.example:6443", kube.APIServer()},
		// The nodes share a kernel, whose limit of connections none of them may set.
		{"clusterCIDR: 10.244.0.0/16", "clusterCIDR: " + kube.PodRanges + "\n  conntrack: {maxPerCore: 0}"},
	} {
		if !strings.Contains(values, r[0]) {
			return nil, fmt.Errorf("values-released.yaml of INSTALL.md: it has no %q to be filled in", r[0])
		}
		values = strings.ReplaceAll(values, r[0], r[1])
	}
	return []byte(values), nil
}

// step runs the commands of the page's one block with a text, in spaces.
func (i *installation) step(ctx context.Context, contains string, spaces ...string) error {
	script, err := i.Page.Find(installed, contains)
	if err != nil {
		return err
	}
	script = life.FillIn(script, map[string]string{"ARCH": runtime.GOARCH, "NODE": i.Nodes()[0]})
	for _, space := range spaces {
		for _, line := range life.Lines(script) {
			inFolder := fmt.Sprintf("cd '%s' && %s", i.Work, line)
			out, err := i.Shell(ctx, space, inFolder)
			fmt.Fprintf(i.out, "%s# %s\n%s", space, line, out)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (i *installation) run(ctx context.Context) error {
	if err := i.InstallProxy(ctx, kube.Proxy{Program: kube.NoProxy}); err != nil {
		return err
	}
	for _, node := range i.Nodes() {
		if i.TryService(ctx, node) == nil {
			return fmt.Errorf("a Service works on node %s without a proxy", node)
		}
	}
	if err := i.step(ctx, "sha256sum", kube.Control); err != nil {
		return err
	}
	if err := i.step(ctx, "images import", i.Nodes()...); err != nil {
		return err
	}
	if err := i.step(ctx, "helm template", kube.Control); err != nil {
		return err
	}
	if err := i.AwaitServices(ctx); err != nil {
		return err
	}
	if err := i.InstallDNS(ctx); err != nil {
		return err
	}
	if err := i.namesResolve(ctx); err != nil {
		return err
	}
	if err := i.releasedImages(ctx); err != nil {
		return err
	}
	took, err := i.Same(ctx, life.Rendering{Program: "vmapd-" + runtime.GOARCH, Args: []string{"--cluster-cidr", kube.PodRanges}})
	if err != nil {
		return err
	}
	fmt.Fprintf(i.out, "tables equal after %v\n", took.Round(time.Millisecond))
	err = i.step(ctx, "kubectl vmapd", kube.Control)
	return err
}

// namesResolve asks the cluster's DNS, which are pods behind a cluster IP, from each node.
func (i *installation) namesResolve(ctx context.Context) error {
	const name = "kubernetes.default.svc." + kube.ClusterDomain
	for _, node := range i.Nodes() {
		dns := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return i.Dial(ctx, node, network, net.JoinHostPort(kube.DNSAddress, "53"))
		}}
		found, err := dns.LookupHost(ctx, name)
		if err != nil {
			return fmt.Errorf("from node %s: %w", node, err)
		}
		fmt.Fprintf(i.out, "from node %s, %s is %v\n", node, name, found)
	}
	return nil
}

// releasedImages checks that the pods run what the layout has. Without a registry, containerd names an image by the digest of
// its configuration.
func (i *installation) releasedImages(ctx context.Context) error {
	want, err := configOf(filepath.Join(i.Work, "vmapd"))
	if err != nil {
		return err
	}
	const each = `{range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].imageID}{"\n"}{end}`
	out, err := i.Kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=vmapd", "-o", "jsonpath="+each)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(i.out, out)
	if n := strings.Count(out, " "+want+"\n"); n != len(i.Nodes()) {
		return fmt.Errorf("%d of %d nodes run the layout's image %s:\n%s", n, len(i.Nodes()), want, out)
	}
	return nil
}

// configOf returns the digest of the configuration of a layout's image for this processor, by way of index.json, the index of
// the processors, and the image's manifest.
func configOf(layout string) (string, error) {
	type descriptor struct {
		Digest   string
		Platform struct{ Architecture string }
	}
	var document struct {
		Manifests []descriptor
		Config    descriptor
	}
	for file := "index.json"; ; {
		text, err := os.ReadFile(filepath.Join(layout, file))
		if err != nil {
			return "", err
		}
		document.Manifests, document.Config = nil, descriptor{}
		if err := json.Unmarshal(text, &document); err != nil {
			return "", fmt.Errorf("read %s of %s: %w", file, layout, err)
		}
		if document.Config.Digest != "" {
			return document.Config.Digest, nil
		}
		next := slices.IndexFunc(document.Manifests, func(d descriptor) bool {
			return d.Platform.Architecture == "" || d.Platform.Architecture == runtime.GOARCH
		})
		if next < 0 {
			return "", fmt.Errorf("%s has no image for %s", layout, runtime.GOARCH)
		}
		file = filepath.Join("blobs", strings.ReplaceAll(document.Manifests[next].Digest, ":", "/"))
	}
}
