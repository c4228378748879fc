package metrics

import (
	"runtime/debug"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
)

// build is the build information of this program, and what metrics have besides.
type build struct {
	buildinfo.Build
	treeState, compiler, platform string
	major, minor, kubernetes      string
}

// clientLibrary has version v0.Y.Z where Kubernetes has v1.Y.Z.
const clientLibrary = "k8s.io/client-go"

func readBuild(info *debug.BuildInfo) build {
	b := build{Build: buildinfo.Read(info), kubernetes: "v0.0.0"}
	if info == nil {
		return b
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	b.compiler = set["-compiler"]
	b.platform = set["GOOS"] + "/" + set["GOARCH"]
	b.treeState = map[string]string{"true": "dirty", "false": "clean"}[set["vcs.modified"]]
	for _, d := range info.Deps {
		if v, ok := strings.CutPrefix(d.Version, "v0."); ok && d.Path == clientLibrary {
			b.kubernetes, b.major = "v1."+v, "1"
			b.minor, _, _ = strings.Cut(v, ".")
		}
	}
	return b
}

// gitVersion is the version of Kubernetes that this program was built for, with vmapd's own
// version behind it, as distributions of Kubernetes have it. Alerts compare the first part among
// all components of a cluster.
func (b build) gitVersion() string {
	own := strings.Map(func(r rune) rune { // the characters of semver's build metadata
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		case r == '+':
			return '.'
		}
		return -1
	}, strings.TrimPrefix(b.Version, "v"))
	return b.kubernetes + "+vmapd." + own
}

func (m *Metrics) registerBuild() {
	b := readBuild(m.options.Build)
	m.gauge("kubernetes", "build_info", "The version of Kubernetes that this program was built for, and its build information. Always 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform").
		WithLabelValues(b.major, b.minor, b.gitVersion(), b.Commit, b.treeState, b.Date, b.GoVersion, b.compiler, b.platform).Set(1)
	m.gauge(ownNamespace, "build_info", "The version of this program. Always 1.", "version", "revision").WithLabelValues(b.Version, b.Commit).Set(1)
}
