// Package cli has the commands of vmapd, a file each. They ask the daemon, a cluster or files, and print a report.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Main is the program: it runs vmapd, or the plugin of kubectl if it is called by that name, and exits.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	root := Command()
	if filepath.Base(os.Args[0]) == PluginName {
		root = asPlugin()
	}
	code := execute(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run runs vmapd, and returns the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, Command(), args, stdin, stdout, stderr)
}

func execute(
	ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // Ctrl-C
		return exitInterrupted
	}
	report.Complain(stderr, err.Error())
	if errors.Is(err, explain.ErrUnexpected) {
		return 2 // --expect
	}
	return 1
}

// Command returns vmapd's command, for pages and tests.
func Command() *cobra.Command {
	var f config.Flags
	root := &cobra.Command{
		Use:   "vmapd",
		Short: "A Kubernetes Service proxy on nftables maps",
		Long:  docs.Help("vmapd"),
		// A template would keep all methods of all types in the binary.
		Version:       buildinfo.Current().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDaemon(cmd.Context(), &f, cmd.ErrOrStderr())
		},
	}
	f.AddFlags(root.Flags())
	root.AddCommand(newRenderCommand(), newExplainCommand(), newCleanupCommand(), newDoctorCommand(),
		newPreflightCommand(), newTraceCommand(), newWaitCommand(),
		newVersionCommand())
	root.AddCommand(newStatusCommand(), newServicesCommand(), newOwnUICommand(), newTunnelCommand(), newAttachedCommand())
	return root
}

// exitError is an error that was already printed.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// missing returns the error of an argument or a flag that is required.
func missing(what string) error { return fmt.Errorf("missing %s", what) }

func newVersionCommand() *cobra.Command {
	var output report.Format
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildinfo.Current()
			return report.Print(cmd.OutOrStdout(), output, b, func(t *report.Text) {
				t.Say("vmapd     %s", b.Version)
				t.Say("commit    %s%s", b.Commit, map[bool]string{true: ", with changes"}[b.Modified])
				t.Say("date      %s", b.Date)
				t.Say("Go        %s", b.GoVersion)
				t.Say("platform  %s", b.Platform)
			})
		},
	}
	report.AddFormat(c.Flags(), &output)
	return c
}
