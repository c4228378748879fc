package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// NodeFlags are the flags of commands that show what the daemon on a node does: its configuration files, and objects in
// files or in a cluster.
type NodeFlags struct {
	config.Flags
	Paths      []string // of manifests
	kubeconfig string
	incomplete bool // an object could not be read
}

// addFlags defines the flags, but for --kubeconfig, and some more of the daemon's.
func (n *NodeFlags) addFlags(f *pflag.FlagSet, nodeName string, more ...string) {
	n.AddSome(f, append(more, "config", "vmapd-config")...)
	f.StringVar(&n.NodeName, "node-name", "", nodeName)
	f.StringArrayVarP(&n.Paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
}

func (n *NodeFlags) addKubeconfig(f *pflag.FlagSet) {
	f.StringVar(&n.kubeconfig, "kubeconfig", "", "file with the address and credentials of a cluster")
}

func (n *NodeFlags) hasObjects() bool { return n.kubeconfig != "" || len(n.Paths) > 0 }

func (n *NodeFlags) connect() (*client.Client, error) {
	if len(n.Paths) > 0 {
		return nil, errors.New("give either manifests (-f) or a cluster (--kubeconfig)")
	}
	c, err := informer.Connect(componentconfig.ClientConnectionConfiguration{Kubeconfig: n.kubeconfig}, "")
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// load reads manifests, and prints what it can't read.
func (n *NodeFlags) load(stderr io.Writer) (*manifest.Objects, error) {
	o, errs, err := manifest.Load(n.Paths)
	if err != nil {
		return nil, err
	}
	if text := o.Unread(); text != "" { // a kind of ours may be misspelt
		report.Complain(stderr, "warning: "+text)
	}
	for _, e := range errs {
		report.Complain(stderr, e.Error())
	}
	if n.incomplete = len(errs) > 0; n.incomplete && o.Len() == 0 {
		err = exitError(1)
	}
	return o, err
}

// read reads the objects that a query is about, or all, and prints which it can't read.
func (n *NodeFlags) read(ctx context.Context, q *names.Query, stderr io.Writer) (*names.Directory, error) {
	if n.kubeconfig == "" {
		o, err := n.load(stderr)
		if err != nil {
			return nil, err
		}
		return objects.Of(o), nil
	}
	cluster, err := n.connect()
	if err != nil {
		return nil, err
	}
	d, refused, err := objects.Read(ctx, cluster, q, nil)
	for _, e := range refused {
		report.Complain(stderr, fmt.Sprintf("%v; continuing without them", e))
	}
	n.incomplete = len(refused) > 0
	return d, err
}

// Load returns the configuration, and prints warnings about its files.
func (n *NodeFlags) Load(stderr io.Writer) (*config.Config, error) {
	c, err := config.Load(&n.Flags)
	if err == nil {
		warn(&n.Flags, c, stderr)
	}
	return c, err
}

// warn prints the warnings about configuration files, for commands without a log. Warnings about
// flags, and about the daemon's choice of a backend, are not printed.
func warn(f *config.Flags, c *config.Config, stderr io.Writer) {
	if f.ConfigFile == "" && f.OwnConfigFile == "" {
		return
	}
	for _, n := range c.Notes {
		if n.Level >= slog.LevelWarn && !n.Event {
			report.Complain(stderr, n.Text)
		}
	}
}
