package cli

import (
	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

func writeBuild(t *report.Text, b buildinfo.Build) {
	changes := ""
	if b.Modified {
		changes = ", with changes"
	}
	t.Say("vmapd     %s", b.Version)
	t.Say("commit    %s%s", b.Commit, changes)
	t.Say("date      %s", b.Date)
	t.Say("Go        %s", b.GoVersion)
	t.Say("platform  %s", b.Platform)
}

func newVersionCommand() *cobra.Command {
	var output report.Format
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := buildinfo.Current()
			return report.Print(cmd.OutOrStdout(), output, b, func(t *report.Text) { writeBuild(t, b) })
		},
	}
	report.AddFormat(c.Flags(), &output)
	return c
}
