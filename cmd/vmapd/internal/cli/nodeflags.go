package cli

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

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
