package cli

import "github.com/spf13/cobra"

// newWaitCommand is for the pods of a DaemonSet that have done their work, which must not end: the
// image has no other program.
func newWaitCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "wait",
		Short:  "Do nothing until SIGTERM",
		Args:   arguments(),
		Hidden: true,
		Run:    func(cmd *cobra.Command, _ []string) { <-cmd.Context().Done() },
	}
}
