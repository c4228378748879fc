// Package buildinfo reads what the go command writes into a program: its version and commit.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Unknown is the version and the commit of a program that was built without git or outside its repository.
const Unknown = "unknown"

// Build is where a program comes from. The names in JSON and YAML do not change.
type Build struct {
	Version   string `json:"version"`            // a tag, "v0.1.1-0.DATE-COMMIT" after v0.1.0, or "v0.1.0-dev.DATE-COMMIT"
	Commit    string `json:"commit"`             // in full
	Date      string `json:"date"`               // of the commit (RFC 3339, in UTC), so that two builds are the same
	Modified  bool   `json:"modified,omitempty"` // files had changes that were not committed
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

// Read reads a build's information, which is nil for a program that has none.
func Read(info *debug.BuildInfo) Build {
	b := Build{Unknown, Unknown, Unknown, false, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return b
	}
	b.GoVersion = cmp.Or(info.GoVersion, b.GoVersion)
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = strings.Replace(v, "v0.0.0-", "v0.1.0-dev.", 1) // there is no tag yet
	}
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

// Current is the build of this program.
func Current() Build {
	info, _ := debug.ReadBuildInfo()
	return Read(info)
}

// String is the line of --version.
func (b Build) String() string {
	changes := map[bool]string{true: " with changes"}[b.Modified]
	return b.Version + " commit " + b.Commit + changes + " " + b.GoVersion
}
