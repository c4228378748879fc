package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

func (c *Cluster) startNode(ctx context.Context, node string) error {
	c.Log.Info("starting a node", slog.String("node", node))
	if err := c.groups.make(node); err != nil {
		return err
	}
	if err := c.makeSpace(node); err != nil {
		return err
	}
	if err := c.plugIn(node); err != nil {
		return err
	}
	if err := c.configureNode(node); err != nil {
		return err
	}
	for _, start := range []func(context.Context, string) error{c.startContainerd, c.loadAllImages, c.startKubelet} {
		if err := start(ctx, node); err != nil {
			return err
		}
	}
	if err := c.connectPods(ctx, node); err != nil {
		return err
	}
	return c.AwaitNode(ctx, node)
}

func containerd(node string) string { return "containerd-" + node }
func kubelet(node string) string    { return "kubelet-" + node }

// The CNI plugins of Debian.
const cniPrograms = "/usr/lib/cni"

// configureNode writes the files of a node.
func (c *Cluster) configureNode(node string) error {
	dir := c.path("nodes", node)
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
		return err
	}
	// Names outside of the cluster have no address.
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		return err
	}
	err := writeFilled("containerd.toml", filepath.Join(dir, "containerd.toml"), map[string]string{
		"PauseImage": PauseImage, "CNIPrograms": cniPrograms, "CNIConf": filepath.Join(dir, "cni"),
	})
	if err != nil {
		return err
	}
	ca, err := readAuthority(c.path("pki"), "ca")
	if err != nil {
		return err
	}
	v4, v6 := Addresses(node)
	err = ca.issue(c.path("pki"), node, certutil.Config{
		CommonName: "system:node:" + node, Organization: []string{"system:nodes"},
		AltNames: certutil.AltNames{DNSNames: []string{node}, IPs: []net.IP{v4.AsSlice(), v6.AsSlice()}},
	})
	if err != nil {
		return err
	}
	values := kubeletValues(c.path("pki"), dir, "/"+c.groups.name+"/"+node, node)
	return writeFilled("kubelet.yaml", filepath.Join(dir, "kubelet.yaml"), values)
}

// kubeletValues are for the template kubelet.yaml.
func kubeletValues(pki, dir, group, node string) map[string]string {
	return map[string]string{
		"PKI": pki, "Folder": dir, "Group": group, "Node": node, "DNS": DNSAddress, "Domain": ClusterDomain,
	}
}

func (c *Cluster) startContainerd(ctx context.Context, node string) error {
	p := c.Process(containerd(node))
	p.Space, p.Args = node, []string{"containerd", "--config", c.path("nodes", node, "containerd.toml")}
	if err := p.Start(ctx); err != nil {
		return err
	}
	return Until(ctx, startLimit, "wait for containerd", func() error { return Run(c.ctr(ctx, node, "version")) }, p)
}

func (c *Cluster) startKubelet(ctx context.Context, node string) error {
	v4, v6 := Addresses(node)
	dir := c.path("nodes", node)
	p := c.Process(kubelet(node))
	p.Space, p.Args = node, []string{
		c.program("kubelet"),
		"--config=" + filepath.Join(dir, "kubelet.yaml"),
		"--bootstrap-kubeconfig=" + c.path("pki", bootstrap+".conf"),
		"--kubeconfig=/var/lib/kubelet/kubeconfig",
		"--cert-dir=/var/lib/kubelet/pki",
		"--hostname-override=" + node,
		"--node-ip=" + v4.String() + "," + v6.String(),
		"--v=1",
	}
	return p.Start(ctx)
}

// connectPods waits until the controller manager has given the node ranges for its pods, and makes
// the network of these.
func (c *Cluster) connectPods(ctx context.Context, node string) error {
	ranges := map[string][]netip.Prefix{}
	client := c.Client()
	err := Until(ctx, startLimit, "wait for the pod ranges of "+node, func() error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if ranges[n.Name], err = podRanges(&n); err != nil {
				return err
			}
		}
		if len(ranges[node]) == 0 {
			return fmt.Errorf("there is no node %s with podCIDRs", node)
		}
		return nil
	}, c.Process(kubelet(node)), c.Process(apiserver), c.Process(controllerManager))
	if err != nil {
		return err
	}
	own := ranges[node]
	delete(ranges, node)
	if err := c.routePods(node, own, ranges); err != nil {
		return err
	}
	// kubelet reports the network as ready once this file is there.
	return writeFilled("cni.conflist", c.path("nodes", node, "cni", "10-testbed.conflist"), map[string]any{"PodRanges": own})
}

func podRanges(n *corev1.Node) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, s := range n.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("node %s, podCIDRs: %w", n.Name, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// AwaitNode waits until a node is ready.
func (c *Cluster) AwaitNode(ctx context.Context, node string) error {
	client := c.Client()
	return Until(ctx, startLimit, "wait for node "+node+" to be ready", func() error {
		n, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
				return errors.New(cond.Message)
			}
		}
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("it has the taint %s", n.Spec.Taints[0].Key)
		}
		return nil
	}, c.Process(kubelet(node)), c.Process(containerd(node)), c.Process(apiserver))
}
