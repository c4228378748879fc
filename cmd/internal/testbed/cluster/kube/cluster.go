package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Config says which cluster New makes.
type Config struct {
	// Name tells clusters of one machine apart; letters and digits, ten at most.
	Name string

	// Dir is the folder of the cluster; the default is below the user's cache folder. Images and logs stay in it.
	Dir string

	// KubeDir is the folder with the released programs; Missing lists those that it lacks.
	KubeDir string

	// Nodes is how many nodes there are.
	Nodes int

	// Log, if not nil, hears of each step.
	Log *slog.Logger `json:"-"`
}

// Cluster is a Kubernetes cluster on this machine.
type Cluster struct {
	Config

	groups groups
}

// DefaultDir returns the folder of a cluster with that name.
func DefaultDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the cluster (--dir): %w", err)
	}
	return filepath.Join(cache, "vmapd-cluster", name), nil
}

// New returns a cluster that does not run yet.
func New(conf Config) (*Cluster, error) {
	if !regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`).MatchString(conf.Name) {
		return nil, fmt.Errorf("name of the cluster %q: want up to ten small letters and digits", conf.Name)
	}
	if conf.Nodes < 1 || conf.Nodes > maxNodes {
		return nil, fmt.Errorf("%d nodes: want 1 to %d", conf.Nodes, maxNodes)
	}
	var err error
	if conf.Dir == "" {
		if conf.Dir, err = DefaultDir(conf.Name); err != nil {
			return nil, err
		}
	}
	for _, dir := range []*string{&conf.Dir, &conf.KubeDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, fmt.Errorf("find the folder %s: %w", *dir, err)
		}
		for _, own := range ownFolders {
			if strings.HasPrefix(*dir+"/", "/"+own+"/") {
				return nil, fmt.Errorf("the folder %s can't be below /%s, of which each node has its own", *dir, own)
			}
		}
	}
	return connect(conf)
}

// Open returns the cluster of a folder, which says its steps to log, if that is not nil. The error is
// fs.ErrNotExist if there is none.
func Open(dir string, log *slog.Logger) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder %s: %w", dir, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
	if err != nil {
		return nil, fmt.Errorf("no cluster is in %s: %w", dir, err)
	}
	var conf Config
	if err := json.Unmarshal(data, &conf); err != nil {
		return nil, fmt.Errorf("read %s/cluster.json: %w", dir, err)
	}
	conf.Dir, conf.Log = dir, log
	return connect(conf)
}

func connect(conf Config) (*Cluster, error) {
	if conf.Log == nil {
		conf.Log = slog.New(slog.DiscardHandler)
	}
	groups, err := findGroups("vmapd-" + conf.Name)
	return &Cluster{Config: conf, groups: groups}, err
}

func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

func (c *Cluster) program(name string) string { return filepath.Join(c.KubeDir, name) }

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
	if err := c.Check(); err != nil {
		return err
	}
	if err := c.Down(); err != nil { // what is in the folder, without processes
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the cluster %s: %w", c.Name, err), c.Down())
		}
	}()
	if err := os.RemoveAll(c.path("log")); err != nil {
		return fmt.Errorf("remove the logs of an earlier cluster: %w", err)
	}
	if err := c.makeFolder(); err != nil {
		return err
	}
	if err := c.groups.make(system); err != nil {
		return err
	}
	c.Log.Info("making the network")
	if err := c.buildNetwork(); err != nil {
		return err
	}
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes() {
		if err := c.startNode(ctx, node); err != nil {
			return fmt.Errorf("start node %s: %w", node, err)
		}
	}
	return nil
}

// makeFolder makes the cluster's folder, with the file that Open reads.
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
	return os.WriteFile(c.path("cluster.json"), data, 0o600)
}

// Check returns an error that names everything that this machine and the folder of programs lack for
// Up, which calls it, and for other uses: the programs given. It is an error, too, if a cluster of this name runs.
func (c *Cluster) Check(programs ...string) error {
	if missing := Missing(c.KubeDir, programs...); len(missing) > 0 {
		return &MissingError{c.KubeDir, missing}
	}
	if err := c.checkMachine(); err != nil {
		return err
	}
	pids, err := c.groups.processes()
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("a cluster %s runs already; 'cluster down --name %[1]s' ends it", c.Name)
	}
	return err
}

// Down ends the cluster, and removes all but logs and images. It is no error if none runs.
func (c *Cluster) Down() error {
	if err := c.groups.kill(); err != nil {
		return err
	}
	for _, sub := range []string{"nodes", "etcd", "pki", "process", "audit.yaml", "cluster.json"} {
		if err := os.RemoveAll(c.path(sub)); err != nil {
			return fmt.Errorf("remove what the cluster left: %w", err)
		}
	}
	return nil
}

// Programs are those that a cluster is made of, in Config.KubeDir.
func Programs() []string {
	return []string{etcd, apiserver, controllerManager, scheduler, "kubelet", "kubectl"}
}

// Missing returns the programs that a folder lacks: of Programs and of those given.
func Missing(dir string, more ...string) []string {
	return slices.DeleteFunc(append(Programs(), more...), func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}

// MissingError says which released programs are missing, and where they come from.
type MissingError struct {
	Dir      string // of --kube; if empty, there is none
	Programs []string
}

const sources = "they are in kubernetes-server-linux-ARCH.tar.gz and kubernetes-test-linux-ARCH.tar.gz of " +
	"https://dl.k8s.io/VERSION/, etcd and coredns at https://github.com/etcd-io/etcd/releases and " +
	"https://github.com/coredns/coredns/releases, and agnhost in the image registry.k8s.io/e2e-test-images/agnhost " +
	"and as test/images/agnhost in Kubernetes' source"

func (e *MissingError) Error() string {
	if e.Dir == "" {
		return "the folder of Kubernetes' released programs is missing (make -C cmd/internal/testbed test-cluster KUBE=DIR, or --kube DIR): " + sources
	}
	return fmt.Sprintf("%s lacks %s: %s", e.Dir, strings.Join(e.Programs, ", "), sources)
}

// Is makes a MissingError a fs.ErrNotExist.
func (e *MissingError) Is(target error) bool { return target == fs.ErrNotExist }
