package life

import (
	"context"
	_ "embed"
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
		return append([]Step{
			{Name: "upgrade", Do: sameImage()},
			{Name: "upgrade and roll-back", Do: inTurn(sameImage(), undo("kube-proxy"))},
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
	m, err := r.Manifest(r.proxy(VMAPD))
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, m); err != nil {
		return err
	}
	return r.RolledOut(ctx, "kube-system", "daemonset/vmapd")
}

// sameImage gives kube-proxy's DaemonSet a second name of its image: an upgrade that changes nothing.
func sameImage() Action {
	const again = kube.KubeProxyImage + "-again"
	return inTurn(
		eachNode(func(n string) Action {
			return on(n, "ctr --namespace k8s.io images tag --force "+kube.KubeProxyImage+" "+again)
		}),
		sh(
			"kubectl -n kube-system set image daemonset/kube-proxy kube-proxy="+again,
			rolledOut("kube-system", "daemonset/kube-proxy"),
		),
	)
}

// undo brings back the former template of a DaemonSet.
func undo(daemonSet string) Action {
	return sh("kubectl -n kube-system rollout undo daemonset/"+daemonSet, rolledOut("kube-system", "daemonset/"+daemonSet))
}

// troubles are the steps that have nothing to do with which proxy there is. Steps that need one node take the second.
func troubles() []Step {
	pods := rolledOut("life", "deployment/web")
	restartPods := "kubectl -n life rollout restart deployment/web\n" + pods
	return []Step{
		{Name: "rolling update of the pods", Do: sh(restartPods)},
		{Name: "drain and uncordon a node", Do: sh(
			"kubectl drain n2 --ignore-daemonsets --delete-emptydir-data --timeout=2m", pods,
			"kubectl uncordon n2", restartPods,
		)},
		// kubelet registers its Node when it starts.
		{Name: "deletion of a Node, which kubelet registers again", Do: inTurn(
			sh("kubectl delete node n2"), pause(15*time.Second), restarted("kubelet-n2"), ready(second), workloadReady,
		)},
		{Name: "API server away for a minute", Do: inTurn(
			stopped(apiserver), pause(time.Minute), restartedControl(apiserver, unix.SIGTERM), change("after-the-api-server"),
		)},
		{Name: "compaction of etcd while a node is cut off", Do: inTurn(settleNodes(), compact())},
		{Name: "restore of etcd from a snapshot", Do: restore, After: restartProxy},
		{Name: "2,000 Services applied at once", Do: manyServices},
		{Name: "deletion of their namespace", Do: sh("kubectl delete namespace many --wait --timeout=5m")},
	}
}

func workloadReady(ctx context.Context, r *Run) error {
	return sh(rolledOut("life", "deployment/web"), rolledOut("life", "daemonset/client"))(ctx, r)
}

// change makes a Service, so that there is a change that all nodes must hear of. The name is
// also that of the former one, which is deleted.
func change(name string) Action {
	const service = `{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: life},
spec: {selector: {app: web}, ports: [{port: 81, targetPort: 8080}]}}`
	return sh(
		"kubectl -n life delete service "+name+" --ignore-not-found",
		"kubectl apply -f - <<< '"+fmt.Sprintf(service, name)+"'",
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
			sh(fmt.Sprintf("ip route %s blackhole %v/32", verb, node4)),
			on(first, fmt.Sprintf("ip route %s blackhole %v/32", verb, control4)),
		)
	}
	return inTurn(
		cut("add"),
		change("while-cut-off"),
		sh("kubectl -n life scale deployment/web --replicas=5"),
		pause(10*time.Second),
		stopped(apiserver),
		sh(`revision=$(etcdctl endpoint status --write-out=fields | sed -n 's/^"Revision" : //p')`,
			`etcdctl compact --physical "$revision"`),
		restartedControl(apiserver, unix.SIGKILL),
		cut("del"),
	)
}

// restore makes a snapshot of etcd, adds pods and a Service, and goes back to the snapshot: the
// kubelets end the pods, which no object shows any more. As Kubernetes' documentation has it, its
// other components are restarted; the Service proxies are not.
func restore(ctx context.Context, r *Run) error {
	folder := filepath.Join(r.Dir, "etcd")
	return inTurn(
		sh("rm -rf etcd.snapshot etcd.restored; etcdctl snapshot save etcd.snapshot"),
		change("forgotten"),
		sh("kubectl -n life scale deployment/web --replicas=6", rolledOut("life", "deployment/web")),
		stopped(apiserver),
		stopped(etcd),
		sh("etcdutl snapshot restore etcd.snapshot --data-dir etcd.restored", "rm -rf "+folder, "mv etcd.restored "+folder),
		restarted(etcd),
		restartedControl(apiserver, unix.SIGKILL),
		restartClients,
		workloadReady,
	)(ctx, r)
}

// restartClients restarts Kubernetes' own clients of the API server.
func restartClients(ctx context.Context, r *Run) error {
	return inTurn(
		restarted(controllerManager), restarted("kube-scheduler"),
		eachNode(func(n string) Action { return restarted("kubelet-" + n) }),
	)(ctx, r)
}

// restartProxy has the Service proxy read everything again. After the restore, kube-proxy goes on to
// watch from a version that is the server's future, and keeps former endpoints.
func restartProxy(ctx context.Context, r *Run) error {
	object := "daemonset/" + r.proxy(r.Proxy).Program
	return sh("kubectl -n kube-system rollout restart "+object, rolledOut("kube-system", object))(ctx, r)
}

//go:embed many.yaml
var many string

// manyServices applies many Services at once, and waits for their EndpointSlices.
func manyServices(ctx context.Context, r *Run) error {
	const services = 2000
	const service = `---
{apiVersion: v1, kind: Service, metadata: {name: s%d, namespace: many},
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
`
	var m strings.Builder
	m.WriteString(strings.ReplaceAll(many, "IMAGE", kube.PodserverImage))
	for i := range services {
		fmt.Fprintf(&m, service, i)
	}
	apply := r.KubectlCommand(ctx, "apply", "--server-side", "-f", "-")
	apply.Stdin = strings.NewReader(m.String())
	if err := kube.Run(apply); err != nil {
		return err
	}
	if err := r.RolledOut(ctx, "many", "deployment/web"); err != nil {
		return err
	}
	return kube.Until(ctx, 5*time.Minute, "wait for EndpointSlices", func() error {
		const ready = `{range .items[*]}{.endpoints[1].conditions.ready}{"\n"}{end}`
		out, err := r.Kubectl(ctx, "-n", "many", "get", "endpointslices", "-o", "jsonpath="+ready)
		if n := strings.Count(out, "true"); err == nil && n < services {
			err = fmt.Errorf("%d of %d EndpointSlices have two ready endpoints", n, services)
		}
		return err
	})
}
