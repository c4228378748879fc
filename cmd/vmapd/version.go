package main

import (
	"fmt"
	"runtime/debug"
)

// version returns the module's version, or the commit, from the build information.
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
