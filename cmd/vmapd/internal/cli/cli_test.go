package cli

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// Who interrupts a command knows that it ended early.
func TestAnInterruptedCommandPrintsNoError(t *testing.T) {
	root := &cobra.Command{Use: "vmapd", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(&cobra.Command{Use: "wait", RunE: func(c *cobra.Command, _ []string) error {
		return fmt.Errorf("wait for packets: %w", c.Context().Err())
	}})
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	if code := execute(ctx, root, []string{"wait"}, nil, &stdout, &stderr); code != 130 || stdout.Len()+stderr.Len() > 0 {
		t.Errorf("exit code %d, want 130; %s%s", code, &stdout, &stderr)
	}
}
