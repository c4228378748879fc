package life

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
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
			sh("kubectl delete node n2"), newKubelet, workloadReady,
		)},
		{Name: "API server away for a minute", Do: inTurn(away, change("after-the-api-server"))},
		{Name: "2,000 Services applied at once", Do: manyServices},
		{Name: "deletion of their namespace", Do: sh("kubectl delete namespace many --wait --timeout=5m")},
	}
}

// newKubelet restarts the second node's kubelet after a moment.
func newKubelet(ctx context.Context, r *Run) error {
	const moment = 15 * time.Second
	if err := lab.Pause(ctx, moment); err != nil {
		return err
	}
	p := r.Process("kubelet-" + second)
	if err := errors.Join(p.Stop(ctx, unix.SIGTERM), p.Start(ctx)); err != nil {
		return err
	}
	return r.AwaitNode(ctx, second)
}

// away ends the API server without notice, and starts it again after a minute.
func away(ctx context.Context, r *Run) error {
	p := r.Process("kube-apiserver")
	if err := errors.Join(p.Stop(ctx, unix.SIGKILL), lab.Pause(ctx, time.Minute), p.Start(ctx)); err != nil {
		return err
	}
	return r.AwaitAPIServer(ctx)
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
