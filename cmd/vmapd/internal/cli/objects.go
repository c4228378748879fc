package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// NodeFlags are the flags of commands that show what the daemon on a node does: its configuration files, and objects in
// files or in a cluster.
type NodeFlags struct {
	config.Flags
	NodeName   string   // of --node-name; "": not given
	Paths      []string // of manifests
	kubeconfig string
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
	c, err := informer.Connect(informer.Config{Kubeconfig: n.kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// load reads manifests, and prints what it can't read. They are complete if that is nothing.
func (n *NodeFlags) load(stderr io.Writer) (o *manifest.Objects, complete bool, err error) {
	o, errs, err := manifest.Load(n.Paths)
	if err != nil {
		return nil, false, err
	}
	if text := o.Unread(); text != "" { // a kind of ours may be misspelt
		report.Complain(stderr, "warning: "+text)
	}
	for _, e := range errs {
		report.Complain(stderr, e.Error())
	}
	if complete = len(errs) == 0; !complete && o.Len() == 0 {
		err = exitError(1)
	}
	return o, complete, err
}

// read reads the objects that a query is about, or all. If some could not be read, it prints them: they are not
// complete.
func (n *NodeFlags) read(
	ctx context.Context, q *names.Query, stderr io.Writer,
) (d *names.Directory, complete bool, err error) {
	if n.kubeconfig == "" {
		o, complete, err := n.load(stderr)
		if err != nil {
			return nil, false, err
		}
		return objects.Of(o), complete, nil
	}
	cluster, err := n.connect()
	if err != nil {
		return nil, false, err
	}
	d, refused, err := objects.Read(ctx, cluster, q, nil)
	for _, e := range refused {
		report.Complain(stderr, fmt.Sprintf("%v; continuing without them", e))
	}
	return d, len(refused) == 0, err
}

// Load returns the configuration, and its part that decides about traffic.
func (n *NodeFlags) Load(stderr io.Writer) (*config.Config, model.Config, error) {
	c, err := config.Load(&n.Flags)
	if err != nil {
		return nil, model.Config{}, err
	}
	warn(&n.Flags, c, stderr)
	traffic := c.Model()
	if n.NodeName != "" {
		traffic.NodeName = strings.ToLower(n.NodeName)
	}
	return c, traffic, nil
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
