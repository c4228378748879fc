package life

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// Steps returns all steps for a proxy, in the order of the table.
func Steps(proxy string) []Step {
	if strings.HasPrefix(proxy, KubeProxy) {
		again := setImage(kube.KubeProxyImage + againSuffix)
		return append([]Step{
			{Name: "upgrade", Do: again},
			{Name: "upgrade and roll-back", Do: inTurn(again, undo("kube-proxy"))},
		}, troubles()...)
	}
	all := []Step{
		{Name: "upgrade", From: Before, Until: VMAPD, Do: upgrade},
		{Name: "upgrade and roll-back", From: Before, Do: inTurn(upgrade, undo("vmapd"))},
	}
	return slices.Concat(all, conversions(), troubles())
}

// upgrade brings this checkout's vmapd to a cluster with the version before.
func upgrade(ctx context.Context, r *Run) error {
	m, err := r.manifest(VMAPD)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, m); err != nil {
		return err
	}
	return r.RolledOut(ctx, "kube-system", "daemonset/vmapd")
}

// setImage changes the image of kube-proxy's DaemonSet and waits until it is everywhere.
func setImage(image string) Action {
	return inTurn(
		eachNode(func(n string) Action {
			return func(ctx context.Context, r *Run) error { return r.TagImage(ctx, n, kube.KubeProxyImage, image) }
		}),
		kubectl("-n", "kube-system", "set", "image", "daemonset/kube-proxy", "kube-proxy="+image),
		rolledOut("kube-system", "daemonset/kube-proxy"),
	)
}

// undo brings back the former template of a DaemonSet.
func undo(daemonSet string) Action {
	return inTurn(
		kubectl("-n", "kube-system", "rollout", "undo", "daemonset/"+daemonSet),
		rolledOut("kube-system", "daemonset/"+daemonSet),
	)
}

// troubles are the steps that have nothing to do with which proxy there is.
func troubles() []Step {
	return []Step{
		{Name: "rolling update of the pods", Do: restartPods()},
		{Name: "drain and uncordon a node", Do: drain()},
		{Name: "deletion of a Node, which kubelet registers again", Do: deleteNode()},
		{Name: "API server away for a minute", Do: withoutAPIServer()},
		{Name: "compaction of etcd while a node is cut off", Prepare: settleNodes(), Do: compact()},
		{Name: "restore of etcd from a snapshot", Do: restore, After: restartProxy},
		{Name: "new key of ServiceAccounts' tokens", Do: newTokens},
		{Name: "new authority of the API server's certificate", Do: newAuthority},
		{Name: "2,000 Services applied at once", Do: manyServices},
		{Name: "deletion of their namespace", Do: kubectl("delete", "namespace", "many", "--wait", "--timeout=5m")},
		// The last one: tokens stay short-lived.
		{Name: "certificates of kubelets and tokens of pods expire", Prepare: shorten, Do: expire},
	}
}

func restartPods() Action {
	return inTurn(kubectl("-n", "life", "rollout", "restart", "deployment/web"), rolledOut("life", "deployment/web"))
}

func workloadReady() Action {
	return inTurn(rolledOut("life", "deployment/web"), rolledOut("life", "daemonset/client"))
}

// drain moves the pods from the second node, and lets them come back.
func drain() Action {
	return inTurn(
		kubectl("drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=2m"),
		rolledOut("life", "deployment/web"),
		kubectl("uncordon", second),
		restartPods(),
	)
}

// deleteNode deletes the second node's Node. kubelet registers it when it starts.
func deleteNode() Action {
	return inTurn(
		kubectl("delete", "node", second), pause(15*time.Second),
		restarted("kubelet-"+second), ready(second), workloadReady(),
	)
}

// withoutAPIServer ends the API server without notice, and starts it a minute later.
func withoutAPIServer() Action {
	return inTurn(
		stopped(apiserver), pause(time.Minute), restartedControl(apiserver, unix.SIGTERM), change("after-the-api-server"),
	)
}

// change makes a Service, so that there is a change that all nodes must hear of. The name is
// also that of the former one, which is deleted.
func change(name string) Action {
	const manifest = `{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: life}, spec: {selector: {app: web}, ports: [{port: 81, targetPort: 8080}]}}`
	return inTurn(
		kubectl("-n", "life", "delete", "service", name, "--ignore-not-found"),
		func(ctx context.Context, r *Run) error { return r.Apply(ctx, fmt.Sprintf(manifest, name)) },
	)
}

// settleNodes has the controller manager count the time since each node's last sign of life from now on.
// After an API server that was away, its own watches begin again late: it takes nodes for dead, and their
// endpoints for unready. A node that another step cuts off just then would not hear that they are ready again.
func settleNodes() Action {
	return inTurn(eachNode(ready), restartedControl(controllerManager, unix.SIGTERM), eachNode(ready))
}

// compact cuts the first node off from the control plane, changes objects, and makes etcd and the
// API server forget the changes one by one: whoever comes back must read everything again.
func compact() Action {
	node4, _ := kube.Addresses(first)
	control4, _ := kube.Addresses(kube.Control)
	cut := func(verb string) Action {
		return inTurn(
			ip(kube.Control, "route", verb, "blackhole", node4.String()+"/32"),
			ip(first, "route", verb, "blackhole", control4.String()+"/32"),
		)
	}
	const forget = `revision=$(etcdctl endpoint status --write-out=fields | sed -n 's/^"Revision" : //p'); etcdctl compact --physical "$revision"`
	return inTurn(
		cut("add"),
		change("while-cut-off"),
		kubectl("-n", "life", "scale", "deployment/web", "--replicas=5"),
		pause(10*time.Second),
		stopped(apiserver),
		script(kube.Control, forget),
		restartedControl(apiserver, unix.SIGKILL),
		cut("del"),
	)
}

// restore makes a snapshot of etcd, adds pods and a Service, and goes back to the snapshot: the
// kubelets end the pods, which no object shows any more. As Kubernetes' documentation has it, its
// other components are restarted; the Service proxies are not.
func restore(ctx context.Context, r *Run) error {
	const snapshot, folder = "etcd.snapshot", "etcd.restored"
	const back = "etcdutl snapshot restore %s --data-dir %s; rm -rf %s; mv %[2]s %[3]s"
	return inTurn(
		script(kube.Control, "rm -rf "+snapshot+" "+folder+"; etcdctl snapshot save "+snapshot),
		change("forgotten"),
		kubectl("-n", "life", "scale", "deployment/web", "--replicas=6"),
		rolledOut("life", "deployment/web"),
		stopped(apiserver),
		stopped(etcd),
		script(kube.Control, fmt.Sprintf(back, snapshot, folder, filepath.Join(r.Dir, "etcd"))),
		restarted(etcd),
		restartedControl(apiserver, unix.SIGKILL),
		restartClients,
		workloadReady(),
	)(ctx, r)
}

// restartProxy has the Service proxy read everything again. After the restore, kube-proxy goes on to
// watch from a version that is the server's future, and keeps former endpoints.
func restartProxy(ctx context.Context, r *Run) error {
	object := "daemonset/" + program(r.Proxy)
	return inTurn(kubectl("-n", "kube-system", "rollout", "restart", object), rolledOut("kube-system", object))(ctx, r)
}
