package main

import (
	"fmt"
	"runtime/debug"
)

// version is what the Go toolchain noted when it built this program: the module's
// version, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = " commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = " with changes"
		}
	}
	return fmt.Sprintf("%s%s%s %s", info.Main.Version, revision, modified, info.GoVersion)
}
