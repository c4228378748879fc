package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Config says which cluster New makes.
type Config struct {
	Dir     string       // folder of the cluster. Images and logs stay in it.
	KubeDir string       // folder of the released programs
	Nodes   int          // number of nodes
	Log     *slog.Logger `json:"-"` // of each step
}

// Cluster is a Kubernetes cluster on this machine.
type Cluster struct{ Config }

// New returns a cluster that does not run yet.
func New(conf Config) (*Cluster, error) {
	if conf.Nodes < 1 || conf.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: want 1 to %d", conf.Nodes, maxNodes)
	}
	for _, dir := range []*string{&conf.Dir, &conf.KubeDir} {
		var err error
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, fmt.Errorf("find the folder %s: %w", *dir, err)
		}
		if strings.HasPrefix(*dir+"/", "/run/") || strings.HasPrefix(*dir+"/", "/var/") {
			return nil, fmt.Errorf("the folder %s can't be below /run or /var, of which each node has its own", *dir)
		}
	}
	return &Cluster{conf}, nil
}

// Open returns the cluster of a folder, which says its steps to log. The error is fs.ErrNotExist if there is none.
func Open(dir string, log *slog.Logger) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	if err != nil {
		return nil, fmt.Errorf("no cluster is in %s: %w", dir, err)
	}
	conf := Config{Log: log}
	if err := json.Unmarshal(data, &conf); err != nil {
		return nil, fmt.Errorf("read %s/cluster.json: %w", dir, err)
	}
	return &Cluster{conf}, nil
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// Nodes returns the names of the nodes.
func (c *Cluster) Nodes() []string {
	names := make([]string, c.Config.Nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	return names
}

// Up starts the cluster, with all nodes ready. If it fails, nothing runs, and the logs are kept.
func (c *Cluster) Up(ctx context.Context) (err error) {
	if err := errors.Join(c.Down(), os.RemoveAll(c.path("log"))); err != nil { // what is in the folder, without processes
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the cluster: %w", err), c.Down())
		}
	}()
	if err := c.makeFolder(); err != nil {
		return err
	}
	c.Log.Info("making the network")
	if err := c.buildNetwork(ctx); err != nil {
		return err
	}
	c.Log.Info("starting the control plane")
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		c.Log.Info("starting a node", slog.String("node", node))
		if err := c.startNode(ctx, node); err != nil {
			return fmt.Errorf("start node %s: %w", node, err)
		}
	}
	return nil
}

// makeFolder makes the cluster's folder, with the file that Open reads, and its control group.
func (c *Cluster) makeFolder() error {
	for _, dir := range []string{"process", "log", "pki", "nodes", "images"} {
		if err := os.MkdirAll(c.path(dir), 0o755); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(c.Config, "", "  ")
	if err != nil {
		return err
	}
	_, groupErr := c.inGroups("make_group system")
	return errors.Join(groupErr, os.WriteFile(c.path("cluster.json"), data, 0o600))
}

// Down ends the cluster, and removes all but logs and images. It is no error if none runs.
func (c *Cluster) Down() error {
	if _, err := c.inGroups("kill_all"); err != nil {
		return err
	}
	for _, sub := range []string{"nodes", "etcd", "pki", "process", "audit.yaml", "cluster.json"} {
		if err := os.RemoveAll(c.path(sub)); err != nil {
			return fmt.Errorf("remove what the cluster left: %w", err)
		}
	}
	return nil
}

// group is the name of the cluster's control groups.
func (c *Cluster) group() string { return "vmapd-c" }

// groupsCommand prepares the shell of groups.sh, which runs further commands.
func (c *Cluster) groupsCommand(commands string, args ...string) []string {
	script := "name=" + c.group() + "\n" + c.fill("groups.sh", nil) + commands
	return append([]string{"bash", "-c", script, "bash"}, args...)
}

func (c *Cluster) inGroups(commands string) (string, error) {
	args := c.groupsCommand(commands)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("control groups %s: %s: %w: %s", c.group(), commands, err, out)
	}
	return string(out), nil
}

const sources = "they are in kubernetes-server-linux-ARCH.tar.gz and kubernetes-test-linux-ARCH.tar.gz of " +
	"https://dl.k8s.io/VERSION/, etcd and coredns at https://github.com/etcd-io/etcd/releases and " +
	"https://github.com/coredns/coredns/releases, and agnhost in the image registry.k8s.io/e2e-test-images/agnhost " +
	"and as test/images/agnhost in Kubernetes' source"

// Check returns an error that names what this machine and the folder of programs lack for a cluster, or that one runs.
func (c *Cluster) Check() error {
	missing := slices.DeleteFunc([]string{
		"etcd", apiserver, controllerManager, "kube-scheduler", "kubelet", "kubectl", "kube-proxy", "coredns", "agnhost",
		"e2e.test",
	}, func(name string) bool {
		_, err := exec.LookPath(filepath.Join(c.KubeDir, name))
		return err == nil
	})
	if len(missing) > 0 {
		return fmt.Errorf("--kube %s: the folder lacks %s: %s", c.KubeDir, strings.Join(missing, ", "), sources)
	}
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: kubelet and containerd mount file systems and make control groups")
	}
	for _, need := range [][2]string{
		{"containerd", "containerd"},
		{"ctr", "containerd"},
		{"runc", "runc"},
		{filepath.Join(cniPrograms, "ptp"), "containernetworking-plugins"},
		{"nsenter", "util-linux"},
		{"mount", "mount"},
		{"hostname", "hostname"},
		{"ip", "iproute2"},
		{"openssl", "openssl"},
		{"nft", "nftables"},
		{"iptables-restore", "iptables"}, // of kubelet and the plugin portmap, too
		{"curl", "curl"},
		{"jq", "jq"},
	} {
		if _, err := exec.LookPath(need[0]); err != nil && !slices.Contains(missing, need[1]) {
			missing = append(missing, need[1])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing, install with apt: %s", strings.Join(missing, " "))
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(c.Dir, &stat); err == nil && stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on an overlay file system, where containerd can't make others: set XDG_CACHE_HOME", c.Dir)
	}
	pids, err := c.inGroups("processes")
	if err == nil && pids != "" {
		err = errors.New("a cluster runs already; 'cluster down' ends it")
	}
	return err
}
