package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddNode starts another node, waits until it is ready, and returns its name, which is the
// first free one. If that fails, nothing is left of the node but its logs.
func (c *Cluster) AddNode(ctx context.Context) (string, error) {
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	node, err := c.addNode(ctx)
	if err != nil && node != "" {
		err = errors.Join(err, c.removeNode(context.WithoutCancel(ctx), node))
	}
	return node, err
}

// addNode is AddNode for callers who hold the lock, and who clean up.
func (c *Cluster) addNode(ctx context.Context) (string, error) {
	s, err := c.state()
	if err != nil {
		return "", fmt.Errorf("add a node: %w", err)
	}
	number := 1
	for slices.Contains(s.Members, nodeName(number)) {
		number++
	}
	if number > maxNodes {
		return "", fmt.Errorf("add a node: there are %d, and the network has no room for more", maxNodes)
	}
	node := nodeName(number)
	s.Members = append(s.Members, node)
	if err := c.save(s); err != nil {
		return "", err
	}
	if err := c.startNode(ctx, node); err != nil {
		return node, fmt.Errorf("start node %s: %w", node, err)
	}
	return node, nil
}

func (c *Cluster) startNode(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
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
	err = ca.issue(c.path("pki"), node, subject{
		user: "system:node:" + node, groups: []string{"system:nodes"}, names: []string{node}, ips: []netip.Addr{v4, v6},
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
	return c.until(ctx, "wait for containerd", []*Process{p}, func() error {
		_, err := output(c.ctr(ctx, node, "version"))
		return err
	})
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
	needs := []*Process{c.Process(kubelet(node)), c.Process(apiserver), c.Process(controllerManager)}
	client := c.Client()
	err := c.until(ctx, "wait for the pod ranges of "+node, needs, func() error {
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
	})
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
	needs := []*Process{c.Process(kubelet(node)), c.Process(containerd(node)), c.Process(apiserver)}
	client := c.Client()
	return c.until(ctx, "wait for node "+node+" to be ready", needs, func() error {
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
	})
}

// RemoveNode ends a node like a machine that is switched off, and deletes its Node.
func (c *Cluster) RemoveNode(ctx context.Context, node string) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.removeNode(ctx, node)
}

func (c *Cluster) removeNode(ctx context.Context, node string) error {
	if err := c.StopNode(ctx, node); err != nil {
		return err
	}
	err := c.Client().CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	s, err := c.state()
	if err != nil {
		return fmt.Errorf("remove node %s: %w", node, err)
	}
	s.Members = slices.DeleteFunc(s.Members, func(n string) bool { return n == node })
	return c.save(s)
}

// StopNode ends a node like a machine that is switched off; its Node stays.
func (c *Cluster) StopNode(ctx context.Context, node string) error {
	if nodeNumber(node) == 0 || !slices.Contains(c.Nodes(), node) {
		return fmt.Errorf("stop node %s: the cluster %s has the nodes %s", node, c.Name, strings.Join(c.Nodes(), ", "))
	}
	for _, name := range []string{kubelet(node), containerd(node)} {
		if err := c.Process(name).Stop(ctx, unix.SIGKILL); err != nil {
			return err
		}
	}
	if err := c.groups.kill(node); err != nil {
		return err
	}
	// Whatever else is in the node: shims of containerd, programs by In.
	if err := c.killMembers(node); err != nil {
		return err
	}
	if err := c.unplug(node); err != nil {
		return err
	}
	for _, name := range []string{kubelet(node), containerd(node), "space-" + node} {
		if err := os.RemoveAll(c.Process(name).file()); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(c.path("nodes", node)); err != nil {
		return fmt.Errorf("remove the files of node %s: %w", node, err)
	}
	return nil
}

// killMembers kills all processes in the network namespace of a space, the last of which is its
// holder.
func (c *Cluster) killMembers(space string) error {
	holder := c.holder(space)
	if holder.PID() == 0 {
		return nil
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", holder.PID()))
	if err != nil {
		return fmt.Errorf("find the processes of %s: %w", space, err)
	}
	const limit = 10 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		pids, err := c.groups.processes(system)
		if err != nil {
			return err
		}
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
			return err != nil || ns != own || pid == holder.PID()
		})
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		if len(pids) == 0 {
			return holder.Kill(context.Background())
		}
	}
	return fmt.Errorf("end the processes of %s: not within %v", space, limit)
}
