package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/kube"
	"github.com/vmapd/vmapd/cmd/internal/testbed/cluster/life"
)

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

// releasedImages checks that the pods run an image, by the name that containerd has for it.
func (i *installation) releasedImages(ctx context.Context, want string) error {
	const each = `{range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].imageID}{"\n"}{end}`
	out, err := i.Kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=vmapd", "-o", "jsonpath="+each)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprint(i.out, out)
	if n := strings.Count(out, " "+want+"\n"); n != len(i.Nodes()) {
		return fmt.Errorf("%d of %d nodes run the release's image %s:\n%s", n, len(i.Nodes()), want, out)
	}
	return nil
}

// same waits until the kernels have what the released program renders. The kubelet takes up to two minutes for a
// changed file, and starts a container again after a pause.
func (i *installation) same(ctx context.Context, own string) error {
	how := life.Rendering{Program: "vmapd-" + runtime.GOARCH, Own: own}
	start := time.Now()
	for {
		_, err := i.Same(ctx, how)
		if err == nil {
			fmt.Fprintf(i.out, "tables equal after %v\n", time.Since(start).Round(time.Millisecond))
			return nil
		}
		const limit = 3 * time.Minute
		if time.Since(start) > limit || ctx.Err() != nil {
			return err
		}
	}
}

// pods returns the names and the restarts of the daemon's pods.
func (i *installation) pods(ctx context.Context) (string, error) {
	const each = `{range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount}{"\n"}{end}`
	return i.Kubectl(ctx, "-n", "kube-system", "get", "pods", "-l", "k8s-app=vmapd", "--sort-by=.metadata.name", "-o", "jsonpath="+each)
}

// samePods checks that no pod was replaced or restarted.
func (i *installation) samePods(ctx context.Context, before string) error {
	now, err := i.pods(ctx)
	if err == nil && now != before {
		err = fmt.Errorf("pods were\n%sand are\n%s", before, now)
	}
	return err
}

// nothingRuns waits until no pod is there, and checks that no object is.
func (i *installation) nothingRuns(ctx context.Context) error {
	if _, err := i.Kubectl(ctx, "-n", "kube-system", "wait", "pods", "--for=delete", "-l", "k8s-app in (vmapd, vmapd-cleanup)", "--timeout=1m"); err != nil {
		return err
	}
	out, err := i.Kubectl(ctx, "-n", "kube-system", "get", "daemonsets,configmaps,serviceaccounts,clusterroles,clusterrolebindings", "-o", "name")
	if err == nil && strings.Contains(out, kube.Vmapd) {
		err = fmt.Errorf("objects of the release are left:\n%s", out)
	}
	return err
}

// noService returns an error if a Service works on a node.
func (i *installation) noService(ctx context.Context) error {
	for _, node := range i.Nodes() {
		if i.TryService(ctx, node) == nil {
			return fmt.Errorf("a Service works on node %s without a proxy", node)
		}
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
