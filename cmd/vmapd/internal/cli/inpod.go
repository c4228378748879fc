package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

// newTunnelCommand connects its input and output with the daemon's socket: kubectl vmapd ui runs it in a pod.
func newTunnelCommand() *cobra.Command {
	var client socket.Client
	c := &cobra.Command{
		Use: "tunnel", Short: "Connect to the daemon's socket", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := client.Dial(cmd.Context(), "", "")
			if err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(conn, cmd.InOrStdin()) // its end is the end of the connection
				_ = conn.Close()
			}()
			_, _ = io.Copy(cmd.OutOrStdout(), conn)
			return nil
		},
	}
	c.Flags().StringVar(&client.Path, "socket", socket.DefaultPath, "the daemon's unix socket")
	return c
}

// newAttachedCommand runs a command until its input ends: so kubectl's end is the command's, too.
func newAttachedCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "attached COMMAND", Short: "Run a command until the input ends", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin())
				cancel()
			}()
			if code := Run(ctx, args, nil, cmd.OutOrStdout(), cmd.ErrOrStderr()); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
	c.Flags().SetInterspersed(false) // what follows COMMAND is the command's
	return c
}

// newWaitCommand is for the pods of a DaemonSet that have done their work: the image has no other program.
func newWaitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "wait",
		Short:  "Do nothing until SIGTERM",
		Args:   cobra.NoArgs,
		Hidden: true,
		Run:    func(cmd *cobra.Command, _ []string) { <-cmd.Context().Done() },
	}
}
