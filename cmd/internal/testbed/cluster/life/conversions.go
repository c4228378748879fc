package life

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// Commands of docs/from-kube-proxy.md, with its words to fill in. A test compares them with the page.
const (
	save = `kubectl -n kube-system get daemonset/kube-proxy configmap/kube-proxy -o yaml \
  | grep -vE '^ *(resourceVersion|uid|creationTimestamp|generation):' > kube-proxy-before.yaml`
	writeManifest = `sed -f cmd/vmapd/deploy/from-kube-proxy.sed -e "s|example.org/vmapd:latest|IMAGE|" ` +
		`-e "s|# vmapd.io/proxy|vmapd.io/proxy|" cmd/vmapd/deploy/vmapd.yaml > my-vmapd.yaml`
	onDelete = `kubectl -n kube-system patch daemonset kube-proxy ` +
		`-p '{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}'`
	rollingUpdate = `kubectl -n kube-system patch daemonset kube-proxy ` +
		`-p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'`
	setImage    = `kubectl -n kube-system set image daemonset/kube-proxy kube-proxy=IMAGE`
	deletePod   = `kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName=NODE`
	status      = `kubectl -n kube-system rollout status daemonset/kube-proxy`
	undoRollout = `kubectl -n kube-system rollout undo daemonset/kube-proxy`
	leave       = `kubectl -n kube-system patch daemonset kube-proxy --patch-file cmd/vmapd/deploy/kube-proxy-leaves.yaml`
	applyVmapd  = `kubectl apply -f my-vmapd.yaml`
	label       = `kubectl label node NODE vmapd.io/proxy=vmapd`
	unlabel     = `kubectl label node NODE vmapd.io/proxy-`
	deleteProxy = `kubectl -n kube-system delete daemonset kube-proxy`
	allNodes    = `kubectl -n kube-system patch daemonset vmapd --type=json ` +
		`-p '[{"op":"remove","path":"/spec/template/spec/nodeSelector/vmapd.io~1proxy"}]'`
	deleteVmapd  = `kubectl -n kube-system delete daemonset vmapd`
	unlabelAll   = `kubectl label node --all vmapd.io/proxy-`
	restoreProxy = `kubectl apply -f kube-proxy-before.yaml`
	cleanedUp    = `kubectl -n kube-system rollout status daemonset/vmapd-cleanup`
	removeVmapd  = `kubectl delete --ignore-not-found -f my-vmapd.yaml`
)

// What the page has in words.
const (
	chooseNftables = `sed -i 's/^\( *\)kind: VmapdConfiguration$/&\n\1backend: nftables/' my-vmapd.yaml`
	writeCleanup   = `sed "s|example.org/vmapd:latest|IMAGE|" cmd/vmapd/deploy/cleanup.yaml > my-cleanup.yaml`
)

// conversions go from kube-proxy to vmapd and back.
func conversions() []Step {
	var all []Step
	for _, mode := range []string{"nftables", "iptables"} {
		// In place, vmapd keeps the mode; node by node, it has nftables.
		for _, steps := range []struct {
			name string
			do   Action
		}{
			{"in place", inPlace(mode)},
			{"node by node", inTurn(toVMAPD(mode), backByNode())},
			{"node by node, without kube-proxy for a while", inTurn(toVMAPD(mode), withoutKubeProxy())},
		} {
			all = append(all, Step{
				Name: fmt.Sprintf("kube-proxy (%s), vmapd, kube-proxy: %s", mode, steps.name),
				From: KubeProxy + mode, Until: KubeProxy + mode, Do: inTurn(sh(save), steps.do),
			})
		}
	}
	return all
}

// page runs commands of the page, for a node.
func page(node string, commands ...string) Action {
	return sh(strings.NewReplacer("NODE", node, "IMAGE", kube.VmapdImage).Replace(strings.Join(commands, "\n")))
}

// inPlace exchanges the image of kube-proxy's DaemonSet.
func inPlace(mode string) Action {
	return inTurn(
		page(first, onDelete, setImage, deletePod), check(first, mode),
		sh(rollingUpdate, status), eachNode(func(n string) Action { return check(n, mode) }),
		sh(undoRollout, status), cleanUp(),
	)
}

// toVMAPD makes a DaemonSet of its own serve all nodes, one after the other.
func toVMAPD(mode string) Action {
	manifest := []string{writeManifest}
	if mode == "iptables" { // "or choose `backend: nftables` there"
		manifest = append(manifest, chooseNftables)
	}
	return inTurn(
		page(first, append(manifest, onDelete, leave, applyVmapd)...),
		eachNode(func(n string) Action { return inTurn(page(n, label), check(n, "nftables")) }),
	)
}

func backByNode() Action {
	return inTurn(
		eachNode(func(n string) Action { return inTurn(page(n, unlabel), kubeProxyRuns(n)) }),
		cleanUp(),
		sh(removeVmapd, rollingUpdate, status), // "until you patch it to RollingUpdate as above"
	)
}

func withoutKubeProxy() Action {
	return inTurn(
		sh(deleteProxy, allNodes, rolledOut("kube-system", "daemonset/vmapd")),
		eachNode(func(n string) Action { return check(n, "nftables") }),
		sh(deleteVmapd, unlabelAll, restoreProxy, status),
		cleanUp(),
		sh(removeVmapd),
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

// cleanUp removes what vmapd left.
func cleanUp() Action {
	return page(first, writeCleanup, "kubectl apply -f my-cleanup.yaml", cleanedUp, "kubectl delete -f my-cleanup.yaml")
}

// check is the page's section of that name, for one node.
func check(node, backend string) Action {
	const commands = `curl -s http://localhost:10256/readyz; echo
curl -s http://localhost:10249/proxyMode; echo
nft list tables; iptables-save | grep -c KUBE-SVC || true`
	return func(ctx context.Context, r *Run) error {
		return kube.Until(ctx, time.Minute, "check "+node, func() error {
			out, err := r.Shell(ctx, node, commands)
			if err != nil {
				return err
			}
			words := strings.Fields(out) // /readyz, the mode, …, the number of rules of kube-proxy
			switch {
			case len(words) < 2 || words[0] != "ok" || words[1] != backend:
				return fmt.Errorf("not ready, or another mode than %s: %.100s", backend, out)
			case backend == "nftables" && (strings.Contains(out, "table ip kube-proxy") || words[len(words)-1] != "0"):
				return fmt.Errorf("rules of kube-proxy are left: %s", out)
			}
			return nil
		})
	}
}
