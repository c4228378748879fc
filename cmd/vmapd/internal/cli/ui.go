package cli

import (
	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/ui"
)

const uiLong = `Ui serves a page for a browser on 127.0.0.1, and prints its address: the state of this node
with reasons and remedies, its Services, those that fail first, and for each its addresses,
endpoints, connections and rules. It asks the daemon by its unix socket, opens nothing else,
and changes nothing. For another machine's browser: kubectl vmapd ui`

func newUICommand() *cobra.Command {
	var path string
	var port uint16
	c := &cobra.Command{
		Use: "ui", Short: "Serve a page for a browser on this machine", Long: uiLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ui.Serve(cmd.Context(), cmd.OutOrStdout(), socket.Client{Path: path}, port)
		},
	}
	c.Flags().StringVar(&path, "socket", socket.DefaultPath, "the daemon's unix socket")
	addPort(c, &port)
	return c
}

func addPort(c *cobra.Command, port *uint16) {
	c.Flags().Uint16Var(port, "port", 0, "port of the page; 0 is a free one")
}
