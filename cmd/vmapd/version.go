package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
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

func writeBuild(w io.Writer, b buildinfo.Build) error {
	changes := ""
	if b.Modified {
		changes = ", with changes"
	}
	_, err := fmt.Fprintf(w, "vmapd     %s\ncommit    %s%s\ndate      %s\nGo        %s\nplatform  %s\n",
		b.Version, b.Commit, changes, b.Date, b.GoVersion, b.Platform)
	return err
}

func newVersionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuild()
			return writeOutput(cmd.OutOrStdout(), output, b, func(w io.Writer) error { return writeBuild(w, b) })
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	return c
}
