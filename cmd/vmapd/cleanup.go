package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/nft/kernel"
)

const cleanupLong = `Cleanup removes the tables "ip vmapd" and "ip6 vmapd" with all that is in them.

Stop the daemon before: while it runs, it owns the tables (from Linux 6.9 on), or
would make them again. Connections that were forwarded go on; new ones to a Service
no longer find their way. There is nothing else to remove: vmapd touches no other
table, no mark and no interface.`

func newCleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that vmapd left on this node",
		Long:  cleanupLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			backend, err := kernel.Open(kernel.Options{})
			if _, ok := errors.AsType[*kernel.UnsupportedError](err); ok {
				// A kernel on which we can't run has nothing of ours.
				fmt.Fprintf(cmd.ErrOrStderr(), "vmapd: nothing to remove: %v\n", err)
				return nil
			}
			if err != nil {
				return err
			}
			err = backend.Remove(cmd.Context())
			if errors.Is(err, kernel.ErrOwned) {
				err = fmt.Errorf("%w (stop the daemon first)", err)
			}
			return errors.Join(err, backend.Close())
		},
	}
}
