package main

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

func readBuild() buildinfo.Build {
	info, _ := debug.ReadBuildInfo()
	return buildinfo.Read(info)
}

// version is the line of --version.
func version() string {
	b := readBuild()
	var s strings.Builder
	s.WriteString(b.Version + " commit " + b.Commit)
	if b.Modified {
		s.WriteString(" with changes")
	}
	return s.String() + " " + b.GoVersion
}

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
			b := readBuild()
			return report.Print(cmd.OutOrStdout(), output, b, func(t *report.Text) { writeBuild(t, b) })
		},
	}
	report.AddFormat(c.Flags(), &output)
	return c
}
