package life

import (
	"context"
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
		// Way A keeps the mode, and way B has the page's own choice.
		a := conversion{mode: mode, backend: mode}
		b := conversion{mode: mode, backend: "nftables"}
		for _, way := range []struct {
			name string
			do   Action
		}{
			{"A", a.wayA()},
			{"B, node by node", b.wayB()},
			{"B, and without kube-proxy for a while", b.wayBWithout()},
		} {
			all = append(all, Step{
				Name: fmt.Sprintf("kube-proxy (%s), vmapd, kube-proxy: way %s", mode, way.name),
				From: KubeProxy + mode, Until: KubeProxy + mode, Do: inTurn(before, way.do),
			})
		}
	}
	return all
}

// conversion follows the page.
type conversion struct {
	mode    string // kube-proxy's
	backend string // that serves
}

// follow runs the commands of one block of the page that begin with a text. kubectl and bin/vmapd run where the
// cluster is administered, others on the node.
func (r *Run) follow(ctx context.Context, section, contains, node, begins string) (string, error) {
	script, err := r.Page.Find(section, contains)
	if err != nil {
		return "", err
	}
	client, _ := kube.Addresses(kube.Outside)
	target, _ := kube.Addresses(first)
	var all strings.Builder
	for _, line := range Lines(script) {
		if !strings.HasPrefix(line, begins) {
			continue
		}
		space := node
		if strings.Contains(line, "kubectl") || strings.Contains(line, "bin/vmapd") {
			space = kube.Control
		}
		out, err := r.Shell(ctx, space, FillIn(line, map[string]string{
			"NODE": node, "IMAGE": kube.VmapdImage, "ADDRESS": client.String(),
			"ADDRESS:PORT": fmt.Sprintf("%v:%d", target, nodePort),
		}))
		all.WriteString(out)
		if err != nil {
			return all.String(), err
		}
	}
	return all.String(), nil
}

// followed runs the commands of a block that begin with a text, for a node.
func followed(section, contains, node, begins string) Action {
	return func(ctx context.Context, r *Run) error {
		_, err := r.follow(ctx, section, contains, node, begins)
		return err
	}
}

// page runs all commands of a block, for the first node.
func page(section, contains string) Action { return followed(section, contains, first, "") }

// labelled runs the command of a block that labels a node.
func labelled(section, contains, node string) Action {
	return followed(section, contains, node, "kubectl label")
}

// before is the section of that name.
func before(ctx context.Context, r *Run) error {
	if err := r.prepareFolder(); err != nil {
		return err
	}
	const explain = "vmapd explain -f cluster.yaml"
	for _, contains := range []string{"proxyMode", explain, "kube-proxy-before.yaml"} {
		out, err := r.follow(ctx, "Before", contains, first, "")
		if err != nil {
			return err
		}
		if contains == explain && !strings.Contains(out, "=> forwarded to") {
			return fmt.Errorf("vmapd explain does not say where a connection goes: %s", out)
		}
	}
	return nil
}

// wayA exchanges the image of kube-proxy's DaemonSet.
func (c conversion) wayA() Action {
	const section = "Way A"
	return inTurn(
		page(section, "OnDelete"), c.check(first), page(section, "RollingUpdate"), c.checkAll(),
		page("Back", "rollout undo"), cleanUp,
	)
}

// toVMAPD makes a DaemonSet of its own serve all nodes, one after the other.
func (c conversion) toVMAPD() Action {
	return inTurn(
		c.writeManifest,
		page("Way B", "kube-proxy-leaves.yaml"),
		eachNode(func(n string) Action {
			if n == first {
				return c.check(n)
			}
			return inTurn(labelled("Way B", "vmapd.io/proxy=vmapd", n), c.check(n)) // "continue node by node"
		}),
		c.checkAll(),
	)
}

// writeManifest writes my-vmapd.yaml as the page says.
func (c conversion) writeManifest(ctx context.Context, r *Run) error {
	script, err := r.Page.Find("Way B", "from-kube-proxy.sed")
	if err != nil {
		return err
	}
	// "Write the output to a file my-vmapd.yaml in place of grep", and "fill in your image".
	script, _, found := strings.Cut(script, " | grep ")
	if !found {
		return fmt.Errorf("no grep in %q", script)
	}
	script = regexp.MustCompile(`image=\S+;`).ReplaceAllLiteralString(script, "image="+kube.VmapdImage+";") + " > my-vmapd.yaml"
	if c.mode == "iptables" { // "or choose `backend: nftables` there"
		const there = "kind: VmapdConfiguration"
		script += "\n" + `sed -i 's/^\( *\)` + there + `$/&\n\1backend: nftables/' my-vmapd.yaml`
	}
	_, err = r.Shell(ctx, kube.Control, script)
	return err
}

func (c conversion) wayB() Action {
	return inTurn(
		c.toVMAPD(),
		eachNode(func(n string) Action {
			return inTurn(labelled("Back", "NODE vmapd.io/proxy-", n), kubeProxyRuns(n))
		}),
		cleanUp,
		page("Back", "-f my-vmapd.yaml"),
		page("Way A", "RollingUpdate"), // "until you patch it back to RollingUpdate as in way A"
	)
}

// kubeProxyRuns waits for a pod of kube-proxy on a node. The rollout of a DaemonSet with the strategy
// OnDelete has no status.
func kubeProxyRuns(node string) Action {
	wait := sh("kubectl -n kube-system wait pods --for=condition=Ready --timeout=20s " +
		"--selector=k8s-app=kube-proxy --field-selector=spec.nodeName=" + node)
	return func(ctx context.Context, r *Run) error {
		return kube.Until(ctx, time.Minute, "wait for kube-proxy", func() error { return wait(ctx, r) })
	}
}

func (c conversion) wayBWithout() Action {
	return inTurn(
		c.toVMAPD(),
		page("Way B", "delete daemonset kube-proxy"),
		sh(rolledOut("kube-system", "daemonset/vmapd")),
		c.checkAll(),
		page("Back", "delete daemonset vmapd"),
		cleanUp,
		page("Back", "-f my-vmapd.yaml"),
	)
}

// cleanUp removes what vmapd left, by a manifest whose image is filled in.
func cleanUp(ctx context.Context, r *Run) error {
	file := filepath.Join(r.Work, kube.Deploy, "cleanup.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	filled := strings.ReplaceAll(string(text), "example.org/vmapd:latest", kube.VmapdImage)
	if err := os.WriteFile(file, []byte(filled), 0o600); err != nil {
		return err
	}
	return page("Back", "cleanup.yaml")(ctx, r)
}

// checkAll is the section Check for all nodes, and the comparison of the rules.
func (c conversion) checkAll() Action {
	return inTurn(eachNode(c.check), page("Check", "explain --kubeconfig"), func(ctx context.Context, r *Run) error {
		_, err := r.Same(ctx, Rendering{
			Program:      "bin/vmapd",
			Args:         "--config " + filepath.Join(r.Work, "config.conf") + " --backend " + c.backend,
			IPTables:     c.backend == "iptables",
			AllAddresses: c.mode == "iptables",
		})
		return err
	})
}

// check is the section Check for one node.
func (c conversion) check(node string) Action {
	return func(ctx context.Context, r *Run) error {
		script, err := r.Page.Find("Check", "readyz")
		if err != nil {
			return err
		}
		commands := "set +eo pipefail\n" // at a prompt, nothing ends because grep counts 0
		for _, line := range Lines(script) {
			commands += strings.Split(line, " #")[0] + "\necho\n"
		}
		return kube.Until(ctx, time.Minute, "check "+node, func() error {
			out, err := r.Shell(ctx, node, commands)
			if err != nil {
				return err
			}
			words := strings.Fields(out) // /readyz, the mode, …, the number of rules of kube-proxy
			switch {
			case len(words) < 2 || words[0] != "ok" || words[1] != c.backend:
				return fmt.Errorf("not ready, or another mode than %s: %.100s", c.backend, out)
			case c.backend == "nftables" && (strings.Contains(out, "table ip kube-proxy") || words[len(words)-1] != "0"):
				return fmt.Errorf("rules of kube-proxy are left: %s", out)
			}
			return nil
		})
	}
}
