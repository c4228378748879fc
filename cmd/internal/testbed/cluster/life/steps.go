package life

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
)

// Steps returns all steps for a proxy, in the order of the table.
func Steps(proxy string) []Step {
	if strings.HasPrefix(proxy, KubeProxy) {
		return append([]Step{
			{Name: "upgrade", Do: func(ctx context.Context, r *Run) error {
				return r.setImage(ctx, kube.KubeProxyImage+againSuffix)
			}},
			{Name: "upgrade and roll-back", Do: func(ctx context.Context, r *Run) error {
				if err := r.setImage(ctx, kube.KubeProxyImage+againSuffix); err != nil {
					return err
				}
				return r.undo(ctx, "kube-proxy")
			}},
		}, troubles()...)
	}
	all := []Step{
		{Name: "upgrade", From: Before, Until: VMAPD, Do: upgrade},
		{Name: "upgrade and roll-back", From: Before, Do: undoUpgrade},
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
	return r.rolledOut(ctx, "kube-system", "daemonset/vmapd")
}

// undoUpgrade makes an upgrade and goes back from it.
func undoUpgrade(ctx context.Context, r *Run) error {
	if err := upgrade(ctx, r); err != nil {
		return err
	}
	return r.undo(ctx, "vmapd")
}

// undo brings back the former template of a DaemonSet.
func (r *Run) undo(ctx context.Context, daemonSet string) error {
	if _, err := r.Kubectl(ctx, "-n", "kube-system", "rollout", "undo", "daemonset/"+daemonSet); err != nil {
		return err
	}
	return r.rolledOut(ctx, "kube-system", "daemonset/"+daemonSet)
}

// troubles are the steps that have nothing to do with which proxy there is.
func troubles() []Step {
	return []Step{
		{Name: "rolling update of the pods", Do: restartPods},
		{Name: "drain and uncordon a node", Do: drain},
		{Name: "deletion of a Node, which kubelet registers again", Do: deleteNode},
		{Name: "API server away for a minute", Do: withoutAPIServer},
		{Name: "compaction of etcd while a node is cut off", Prepare: settleNodes, Do: compact},
		{Name: "restore of etcd from a snapshot", Do: restore, After: restartProxy},
		{Name: "new key of ServiceAccounts' tokens", Do: newTokens},
		{Name: "new authority of the API server's certificate", Do: newAuthority},
		{Name: "2,000 Services applied at once", Do: manyServices},
		{Name: "deletion of their namespace", Do: deleteNamespace},
		// The last one: tokens stay short-lived.
		{Name: "certificates of kubelets and tokens of pods expire", Prepare: shorten, Do: expire},
	}
}

func restartPods(ctx context.Context, r *Run) error {
	if _, err := r.Kubectl(ctx, "-n", "life", "rollout", "restart", "deployment/web"); err != nil {
		return err
	}
	return r.rolledOut(ctx, "life", "deployment/web")
}

// drain moves the pods from the second node, and lets them come back.
func drain(ctx context.Context, r *Run) error {
	if _, err := r.Kubectl(ctx, "drain", second, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=2m"); err != nil {
		return err
	}
	if err := r.rolledOut(ctx, "life", "deployment/web"); err != nil {
		return err
	}
	if _, err := r.Kubectl(ctx, "uncordon", second); err != nil {
		return err
	}
	return restartPods(ctx, r)
}

// deleteNode deletes the second node's Node. kubelet registers it when it starts.
func deleteNode(ctx context.Context, r *Run) error {
	if _, err := r.Kubectl(ctx, "delete", "node", second); err != nil {
		return err
	}
	wait(ctx, 15*time.Second)
	if err := r.restart(ctx, "kubelet-"+second, unix.SIGTERM); err != nil {
		return err
	}
	if err := r.AwaitNode(ctx, second); err != nil {
		return err
	}
	return r.workloadReady(ctx)
}

// restart restarts a process that is no part of the control plane.
func (r *Run) restart(ctx context.Context, process string, signal unix.Signal) error {
	p := r.Process(process)
	if err := p.Stop(ctx, signal); err != nil {
		return err
	}
	return p.Start(ctx)
}

// withoutAPIServer ends the API server without notice, and starts it a minute later.
func withoutAPIServer(ctx context.Context, r *Run) error {
	if err := r.Process(apiserver).Stop(ctx, unix.SIGKILL); err != nil {
		return err
	}
	wait(ctx, time.Minute)
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGTERM); err != nil {
		return err
	}
	return r.change(ctx, "after-the-api-server")
}

// change makes a Service, so that there is a change that all nodes must hear of. The name is
// also that of the former one, which is deleted.
func (r *Run) change(ctx context.Context, name string) error {
	const manifest = `{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: life}, spec: {selector: {app: web}, ports: [{port: 81, targetPort: 8080}]}}`
	if _, err := r.Kubectl(ctx, "-n", "life", "delete", "service", name, "--ignore-not-found"); err != nil {
		return err
	}
	return r.Apply(ctx, fmt.Sprintf(manifest, name))
}

// settleNodes has the controller manager count the time since each node's last sign of life from now on.
// After an API server that was away, its own watches begin again late: it takes nodes for dead, and their
// endpoints for unready. A node that another step cuts off just then would not hear that they are ready again.
func settleNodes(ctx context.Context, r *Run) error {
	if err := r.awaitNodes(ctx); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, controllerManager, unix.SIGTERM); err != nil {
		return err
	}
	return r.awaitNodes(ctx)
}

func (r *Run) awaitNodes(ctx context.Context) error {
	for _, n := range r.Nodes() {
		if err := r.AwaitNode(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// compact cuts the first node off from the control plane, changes objects, and makes etcd and the
// API server forget the changes one by one: whoever comes back must read everything again.
func compact(ctx context.Context, r *Run) error {
	node4, _ := kube.Addresses(first)
	control4, _ := kube.Addresses(kube.Control)
	cut := func(verb string) error {
		if err := r.ip(ctx, kube.Control, "route", verb, "blackhole", node4.String()+"/32"); err != nil {
			return err
		}
		return r.ip(ctx, first, "route", verb, "blackhole", control4.String()+"/32")
	}
	if err := cut("add"); err != nil {
		return err
	}
	if err := r.change(ctx, "while-cut-off"); err != nil {
		return err
	}
	if _, err := r.Kubectl(ctx, "-n", "life", "scale", "deployment/web", "--replicas=5"); err != nil {
		return err
	}
	wait(ctx, 10*time.Second)
	if err := r.Process(apiserver).Stop(ctx, unix.SIGKILL); err != nil {
		return err
	}
	const script = `revision=$(etcdctl endpoint status --write-out=fields | sed -n 's/^"Revision" : //p'); etcdctl compact --physical "$revision"`
	if _, err := r.Shell(ctx, kube.Control, script); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGKILL); err != nil {
		return err
	}
	return cut("del")
}

// restore makes a snapshot of etcd, adds pods and a Service, and goes back to the snapshot: the
// kubelets end the pods, which no object shows any more. As Kubernetes' documentation has it, its
// other components are restarted; the Service proxies are not.
func restore(ctx context.Context, r *Run) error {
	const snapshot, folder = "etcd.snapshot", "etcd.restored"
	if _, err := r.Shell(ctx, kube.Control, "rm -rf "+snapshot+" "+folder+"; etcdctl snapshot save "+snapshot); err != nil {
		return err
	}
	if err := r.change(ctx, "forgotten"); err != nil {
		return err
	}
	if _, err := r.Kubectl(ctx, "-n", "life", "scale", "deployment/web", "--replicas=6"); err != nil {
		return err
	}
	if err := r.rolledOut(ctx, "life", "deployment/web"); err != nil {
		return err
	}
	for _, p := range []string{apiserver, etcd} {
		if err := r.Process(p).Stop(ctx, unix.SIGKILL); err != nil {
			return err
		}
	}
	data := r.etcdData()
	script := fmt.Sprintf("etcdutl snapshot restore %s --data-dir %s; rm -rf %s; mv %[2]s %[3]s", snapshot, folder, data)
	if _, err := r.Shell(ctx, kube.Control, script); err != nil {
		return err
	}
	if err := r.restart(ctx, etcd, unix.SIGTERM); err != nil {
		return err
	}
	if err := r.RestartControlPlane(ctx, apiserver, unix.SIGKILL); err != nil {
		return err
	}
	if err := r.restartClients(ctx); err != nil {
		return err
	}
	return r.workloadReady(ctx)
}

// restartProxy has the Service proxy read everything again. After the restore, kube-proxy goes on to
// watch from a version that is the server's future, and keeps former endpoints.
func restartProxy(ctx context.Context, r *Run) error {
	program, _, _ := strings.Cut(r.Proxy, ":")
	if _, err := r.Kubectl(ctx, "-n", "kube-system", "rollout", "restart", "daemonset/"+program); err != nil {
		return err
	}
	return r.rolledOut(ctx, "kube-system", "daemonset/"+program)
}

func (r *Run) etcdData() string {
	for _, arg := range r.Process(etcd).Args {
		if dir, ok := strings.CutPrefix(arg, "--data-dir="); ok {
			return dir
		}
	}
	return ""
}
