package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// conversions go from kube-proxy to vmapd and back, by the words of FROM-KUBE-PROXY.md.
func conversions() []Step {
	var all []Step
	for _, mode := range []string{"nftables", "iptables"} {
		for _, way := range []struct {
			name string
			do   func(*conversion, context.Context) error
		}{
			{"A", (*conversion).wayA},
			{"B, node by node", (*conversion).wayB},
			{"B, and without kube-proxy for a while", (*conversion).wayBWithout},
		} {
			proxy := KubeProxy + mode
			all = append(all, Step{
				Name: fmt.Sprintf("kube-proxy (%s), vmapd, kube-proxy: way %s", mode, way.name), From: proxy, Until: proxy,
				Do: func(ctx context.Context, r *Run) error {
					c := &conversion{Run: r, image: kube.VmapdImage, backend: "nftables", mode: proxy}
					if err := c.before(ctx); err != nil {
						return err
					}
					return way.do(c, ctx)
				},
			})
		}
	}
	return all
}

// conversion follows the page.
type conversion struct {
	*Run
	image   string
	backend string // that serves
	mode    string // kube-proxy's, as in Step.From
}

// do runs the commands of one block, each where the page says: kubectl and bin/vmapd where the
// cluster is administered, others on the first node.
func (c *conversion) do(ctx context.Context, section, contains string) (string, error) {
	script, err := c.Page.Find(section, contains)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, line := range Lines(script) {
		space := first
		if strings.Contains(line, "kubectl") || strings.Contains(line, "bin/vmapd") {
			space = kube.Control
		}
		out, err := c.Shell(ctx, space, c.filled(line, first))
		all.WriteString(out)
		if err != nil {
			return all.String(), err
		}
	}
	return all.String(), nil
}

func (c *conversion) filled(line, node string) string {
	client, _ := kube.Addresses(kube.Outside)
	target, _ := kube.Addresses(first)
	return FillIn(line, map[string]string{
		"NODE": node, "IMAGE": c.image, "ADDRESS": client.String(),
		"ADDRESS:PORT": fmt.Sprintf("%v:%d", target, nodePort),
	})
}

// before is the section of that name.
func (c *conversion) before(ctx context.Context) error {
	if err := c.prepareFolder(); err != nil {
		return err
	}
	for _, contains := range []string{"proxyMode", "vmapd explain -f cluster.yaml", "kube-proxy-before.yaml"} {
		out, err := c.do(ctx, "Before", contains)
		if err != nil {
			return err
		}
		if strings.HasPrefix(contains, "vmapd explain") && !strings.Contains(out, "=> forwarded to") {
			return fmt.Errorf("vmapd explain does not say where a connection goes: %s", out)
		}
	}
	return nil
}

// fillInImage edits a manifest as the page asks for it.
func (c *conversion) fillInImage(file string) error {
	file = filepath.Join(c.Work, file)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const placeholder = "example.org/vmapd:latest"
	if !strings.Contains(string(text), placeholder) {
		return fmt.Errorf("%s has no image to fill in", file)
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(text), placeholder, c.image)), 0o600)
}

// wayA exchanges the image of kube-proxy's DaemonSet.
func (c *conversion) wayA(ctx context.Context) error {
	if c.mode == KubeProxy+"iptables" {
		c.backend = "iptables"
	}
	const section = "Way A"
	if _, err := c.do(ctx, section, "OnDelete"); err != nil {
		return err
	}
	if err := c.check(ctx, first); err != nil {
		return err
	}
	if _, err := c.do(ctx, section, "RollingUpdate"); err != nil {
		return err
	}
	if err := c.checkAll(ctx); err != nil {
		return err
	}
	if _, err := c.do(ctx, "Back", "rollout undo"); err != nil {
		return err
	}
	return c.cleanUp(ctx)
}

// toVMAPD makes a DaemonSet of its own serve all nodes, one after the other.
func (c *conversion) toVMAPD(ctx context.Context) error {
	const section = "Way B"
	script, err := c.Page.Find(section, "from-kube-proxy.sed")
	if err != nil {
		return err
	}
	// "Write the output to a file my-vmapd.yaml in place of grep", and "fill in your image".
	script, _, found := strings.Cut(script, " | grep ")
	if !found {
		return fmt.Errorf("no grep in %q", script)
	}
	script = regexp.MustCompile(`image=\S+;`).ReplaceAllLiteralString(script, "image="+c.image+";")
	if _, err := c.Shell(ctx, kube.Control, script+" > my-vmapd.yaml"); err != nil {
		return err
	}
	if c.mode == KubeProxy+"iptables" { // "or choose `backend: nftables` there"
		const there = "kind: VmapdConfiguration"
		if _, err := c.Shell(ctx, kube.Control, `sed -i 's/^\( *\)`+there+`$/&\n\1backend: nftables/' my-vmapd.yaml`); err != nil {
			return err
		}
	}
	if _, err := c.do(ctx, section, "kube-proxy-leaves.yaml"); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if n != first { // "continue node by node"
			if err := c.label(ctx, section, "vmapd.io/proxy=vmapd", n); err != nil {
				return err
			}
		}
		if err := c.check(ctx, n); err != nil {
			return err
		}
	}
	return c.checkAll(ctx)
}

// label runs the one command of a block that labels a node.
func (c *conversion) label(ctx context.Context, section, contains, node string) error {
	script, err := c.Page.Find(section, contains)
	if err != nil {
		return err
	}
	for _, line := range Lines(script) {
		if strings.HasPrefix(line, "kubectl label") {
			_, err := c.Shell(ctx, kube.Control, c.filled(line, node))
			return err
		}
	}
	return fmt.Errorf("no command labels a node in %q", script)
}

func (c *conversion) wayB(ctx context.Context) error {
	if err := c.toVMAPD(ctx); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if err := c.label(ctx, "Back", "NODE vmapd.io/proxy-", n); err != nil {
			return err
		}
		if err := c.kubeProxyRuns(ctx, n); err != nil {
			return err
		}
	}
	if err := c.cleanUp(ctx); err != nil {
		return err
	}
	if _, err := c.do(ctx, "Back", "-f my-vmapd.yaml"); err != nil {
		return err
	}
	// "until you patch it back to RollingUpdate as in way A"
	_, err := c.do(ctx, "Way A", "RollingUpdate")
	return err
}

// kubeProxyRuns waits for a pod of kube-proxy on a node. The rollout of a DaemonSet with the strategy
// OnDelete has no status.
func (c *conversion) kubeProxyRuns(ctx context.Context, node string) error {
	return until(ctx, time.Minute, func() error {
		_, err := c.Kubectl(ctx, "-n", "kube-system", "wait", "pods", "--for=condition=Ready", "--timeout=20s",
			"--selector=k8s-app=kube-proxy", "--field-selector=spec.nodeName="+node)
		return err
	})
}

func (c *conversion) wayBWithout(ctx context.Context) error {
	if err := c.toVMAPD(ctx); err != nil {
		return err
	}
	if _, err := c.do(ctx, "Way B", "delete daemonset kube-proxy"); err != nil {
		return err
	}
	if err := c.rolledOut(ctx, "kube-system", "daemonset/vmapd"); err != nil {
		return err
	}
	if err := c.checkAll(ctx); err != nil {
		return err
	}
	if _, err := c.do(ctx, "Back", "delete daemonset vmapd"); err != nil {
		return err
	}
	if err := c.cleanUp(ctx); err != nil {
		return err
	}
	_, err := c.do(ctx, "Back", "-f my-vmapd.yaml")
	return err
}

// cleanUp removes what vmapd left.
func (c *conversion) cleanUp(ctx context.Context) error {
	if err := c.fillInImage(deploy + "/cleanup.yaml"); err != nil {
		return err
	}
	_, err := c.do(ctx, "Back", "cleanup.yaml")
	return err
}

// checkAll is the section Check for all nodes, and the comparison of the rules.
func (c *conversion) checkAll(ctx context.Context) error {
	for _, n := range c.Nodes() {
		if err := c.check(ctx, n); err != nil {
			return err
		}
	}
	if _, err := c.do(ctx, "Check", "explain --kubeconfig"); err != nil {
		return err
	}
	_, err := c.Same(ctx, Rendering{
		Program:      "bin/vmapd",
		Args:         []string{"--config", filepath.Join(c.Work, "config.conf"), "--backend", c.backend},
		IPTables:     c.backend == "iptables",
		AllAddresses: c.mode == KubeProxy+"iptables",
	})
	return err
}

// check is the section Check for one node.
func (c *conversion) check(ctx context.Context, node string) error {
	script, err := c.Page.Find("Check", "readyz")
	if err != nil {
		return err
	}
	return until(ctx, time.Minute, func() error {
		said := map[string]string{}
		for _, line := range Lines(script) {
			// At a prompt, nothing ends because grep counts 0.
			out, err := c.Shell(ctx, node, "("+strings.TrimSpace(strings.Split(line, " #")[0])+") || true")
			if err != nil {
				return err
			}
			for _, about := range []string{"readyz", "proxyMode", "list tables"} {
				if strings.Contains(line, about) {
					said[about] = strings.TrimSpace(out)
				}
			}
		}
		var errs []error
		if said["readyz"] != "ok" || said["proxyMode"] != c.backend {
			errs = append(errs, fmt.Errorf("node %s: readyz %q, mode %q", node, said["readyz"], said["proxyMode"]))
		}
		if t := said["list tables"]; c.backend == "nftables" && (strings.Contains(t, "kube-proxy") || !strings.HasSuffix(t, "\n0")) {
			errs = append(errs, fmt.Errorf("node %s: rules of kube-proxy are left: %s", node, t))
		}
		return errors.Join(errs...)
	})
}
