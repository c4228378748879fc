package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// build is the build information of this program. The names in JSON and YAML do not change.
type build struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Date      string `json:"date,omitempty"` // of the commit
	Modified  bool   `json:"modified,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "unknown", GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// version is the line of --version.
func version() string {
	b := readBuild()
	var s strings.Builder
	s.WriteString(b.Version)
	if b.Commit != "" {
		s.WriteString(" commit " + b.Commit)
	}
	if b.Modified {
		s.WriteString(" with changes")
	}
	return s.String() + " " + b.GoVersion
}

func (b build) write(w io.Writer) error {
	commit := b.Commit
	if b.Modified {
		commit += ", with changes"
	}
	if b.Date != "" {
		commit += ", of " + b.Date
	}
	var err error
	for _, line := range [][2]string{{"vmapd", b.Version}, {"commit", commit}, {"Go", b.GoVersion}, {"platform", b.Platform}} {
		if line[1] != "" && err == nil {
			_, err = fmt.Fprintf(w, "%-9s %s\n", line[0], line[1])
		}
	}
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
			return writeOutput(cmd.OutOrStdout(), output, b, b.write)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	return c
}
