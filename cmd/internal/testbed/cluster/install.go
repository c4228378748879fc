package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

const installLong = `install brings a release to a running cluster, from its files alone and by the commands of
INSTALL.md: without a registry, into each node; and by way of a registry with a password and
by Helm, which changes it, rolls back, removes it, and installs it again. It checks that
Services work, that pods run the release's image, that the kernel has the rules that the
released program renders, or none, and what the plugin of kubectl says. Any other Service
proxy is removed before. The programs crane, helm and registry (Debian's docker-registry) are in one folder.

  cluster up --kube DIR --proxy none
  cluster install --release bin/release --tools bin`

func newInstallCommand(o *options) *cobra.Command {
	var release, tools string
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
			i, err := newInstallation(c, o.deploy, release, tools, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return i.run(cmd.Context())
		},
	}
	o.addProxyFlags(c)
	c.Flags().StringVar(&release, "release", "bin/release", "folder of the released files")
	c.Flags().StringVar(&tools, "tools", "bin", "folder of the programs crane, helm and registry")
	return c
}

// installation is a machine with the released files, kubectl, helm and crane only: the run's folder Work.
type installation struct {
	*life.Run
	page     string // INSTALL.md
	registry string // the program
	version  string // of the release
	digest   string // of its image, as images.txt has it
	out      io.Writer
}

func newInstallation(c *kube.Cluster, deploy, release, tools string, out io.Writer) (*installation, error) {
	text, err := os.ReadFile(filepath.Join(deploy, "INSTALL.md"))
	if err != nil {
		return nil, fmt.Errorf("read the page to follow: %w", err)
	}
	if tools, err = filepath.Abs(tools); err != nil {
		return nil, err
	}
	run := &life.Run{Cluster: c, Page: life.ParsePage(string(text)), Work: filepath.Join(c.Dir, "install")}
	i := &installation{Run: run, page: string(text), registry: filepath.Join(tools, "registry"), out: out}
	if err := os.RemoveAll(i.Work); err != nil {
		return nil, err
	}
	if err := os.CopyFS(i.Work, os.DirFS(release)); err != nil {
		return nil, fmt.Errorf("copy the release (make images): %w", err)
	}
	list, err := os.ReadFile(filepath.Join(i.Work, "images.txt"))
	if err != nil {
		return nil, err
	}
	found := regexp.MustCompile(`(?m)^vmapd:(\S+)@(\S+)$`).FindStringSubmatch(string(list))
	if found == nil {
		return nil, fmt.Errorf("images.txt of the release has no image vmapd:\n%s", list)
	}
	if i.version, i.digest = found[1], found[2]; strings.Contains(i.version, "+") {
		return nil, fmt.Errorf("the release is of %s, which can be no tag in a registry: commit the changes", i.version)
	}
	return i, i.prepare(tools)
}

// prepare writes what the administrator has beside the release.
func (i *installation) prepare(tools string) error {
	for _, dir := range []string{"bin", ".kube"} {
		if err := os.MkdirAll(filepath.Join(i.Work, dir), 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{"helm", "crane"} {
		if err := os.Symlink(filepath.Join(tools, name), filepath.Join(i.Work, "bin", name)); err != nil {
			return err
		}
	}
	kubeconfig, err := os.ReadFile(i.Kubeconfig())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(i.Work, "password"), []byte(kube.RegistryPassword), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(i.Work, ".kube/config"), kubeconfig, 0o600)
}

// values writes values.yaml: one of the page's files, with everything filled in, and more.
func (i *installation) values(file, more string) error {
	found := regexp.MustCompile("(?s)```yaml\n# " + regexp.QuoteMeta(file) + "\n(.*?)```").FindStringSubmatch(i.page)
	if found == nil {
		return fmt.Errorf("INSTALL.md has no %s", file)
	}
	text := strings.NewReplacer("registry.example", kube.Registry(), "sha256:"+strings.Repeat("0", 64), i.digest).Replace(found[1])
	for _, r := range [][2]string{
		{"https://control-plane.example:6443", kube.APIServer()},
		// The nodes share a kernel, whose limit of connections none of them may set.
		{"clusterCIDR: 10.244.0.0/16", "clusterCIDR: " + kube.PodRanges + "\n  conntrack: {maxPerCore: 0}"},
	} {
		if !strings.Contains(text, r[0]) {
			return fmt.Errorf("%s of INSTALL.md: it has no %q to be filled in", file, r[0])
		}
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	return os.WriteFile(filepath.Join(i.Work, "values.yaml"), []byte(text+more), 0o600)
}

// step runs the commands of the one block with a text in a section of the page, in spaces.
func (i *installation) step(ctx context.Context, section, contains string, spaces ...string) error {
	script, err := i.Page.Find(section, contains)
	if err != nil {
		return err
	}
	script = life.FillIn(script, map[string]string{
		"ARCH": runtime.GOARCH, "NODE": i.Nodes()[0], "VERSION": i.version, "CHART": strings.TrimPrefix(i.version, "v"),
		"REGISTRY": kube.Registry(), "USER": kube.RegistryUser,
	})
	for _, space := range spaces {
		for _, line := range life.Lines(script) {
			// SSL_CERT_FILE stands for the authorities that a machine trusts.
			inFolder := fmt.Sprintf("cd '%s' && export SSL_CERT_FILE='%s' && %s", i.Work, i.Authority(), line)
			out, err := i.Shell(ctx, space, inFolder)
			fmt.Fprintf(i.out, "%s# %s\n%s", space, line, out)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Sections of INSTALL.md.
const (
	released = "From the released files"
	imported = "Without a registry"
	rendered = "Without a release of Helm"
	changed  = "Change it"
	removed  = "Remove it"
)

func (i *installation) run(ctx context.Context) error {
	if err := i.InstallProxy(ctx, kube.Proxy{Program: kube.NoProxy}); err != nil {
		return err
	}
	if err := i.noService(ctx); err != nil {
		return err
	}
	if err := i.step(ctx, released, "sha256sum", kube.Control); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{
		i.byImport, i.remove, i.forget, i.byRegistry, i.byHelm, i.change, i.uninstall, i.remove, i.byHelm,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}
