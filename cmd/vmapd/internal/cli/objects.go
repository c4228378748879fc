package cli

import (
	"context"
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
)

// objectFlags say where objects are: in files or in a cluster.
type objectFlags struct {
	paths      []string
	kubeconfig string
}

func (s *objectFlags) addFlags(f *pflag.FlagSet) {
	f.StringArrayVarP(&s.paths, "filename", "f", nil, "file or folder of manifests, - for standard input (repeatable)")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the address and credentials of a cluster")
}

func (s *objectFlags) connect() (*client.Client, error) {
	c, err := informer.Connect(informer.Config{Kubeconfig: s.kubeconfig})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// read reads the objects that a query is about, or all. If some could not be read, it prints them: they are not
// complete.
func (s *objectFlags) read(
	ctx context.Context, q *names.Query, stderr io.Writer,
) (d *names.Directory, complete bool, err error) {
	if s.kubeconfig == "" {
		o, complete, err := objects.Load(s.paths, stderr)
		if err != nil {
			return nil, false, err
		}
		if !complete && o.Len() == 0 {
			return nil, false, exitError(1)
		}
		return objects.Of(o), complete, nil
	}
	cluster, err := s.connect()
	if err != nil {
		return nil, false, err
	}
	r := objects.Reader{Client: cluster, Query: q}
	d, err = r.Read(ctx)
	for _, e := range r.Unread {
		report.Complain(stderr, fmt.Sprintf("%v; continuing without them", e))
	}
	return d, len(r.Unread) == 0, err
}

// NodeFlags are the flags of commands that show what the daemon on a node does.
type NodeFlags struct {
	config.Flags
	NodeName string // of --node-name; "": not given
}

// addFiles defines the flags with the configuration files, and some more of the daemon's.
func (n *NodeFlags) addFiles(f *pflag.FlagSet, nodeName string, more ...string) {
	n.AddFileFlags(f, more...)
	f.StringVar(&n.NodeName, "node-name", "", nodeName)
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
