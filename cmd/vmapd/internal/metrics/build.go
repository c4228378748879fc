package metrics

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
)

// clientLibrary has version v0.Y.Z where Kubernetes has v1.Y.Z.
const clientLibrary = "k8s.io/client-go"

// registerBuild makes the metrics about this program. git_version is the version of Kubernetes that it was built for,
// with vmapd's own behind it, as distributions of Kubernetes have it: alerts compare the first part among all
// components of a cluster.
func (m *Metrics) registerBuild() {
	own, _ := debug.ReadBuildInfo()
	info := cmp.Or(m.options.Build, own, &debug.BuildInfo{})
	b, set := buildinfo.Read(info), map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	major, minor, version := "", "", "v0.0.0"
	for _, d := range info.Deps {
		if v, ok := strings.CutPrefix(d.Version, "v0."); ok && d.Path == clientLibrary {
			major, version = "1", "v1."+v
			minor, _, _ = strings.Cut(v, ".")
		}
	}
	version += "+vmapd." + strings.ReplaceAll(strings.TrimPrefix(b.Version, "v"), "+", ".")
	treeState := map[string]string{"true": "dirty", "false": "clean"}[set["vcs.modified"]]
	gaugeVec(m.registry, "kubernetes_build_info",
		"The version of Kubernetes that this program was built for, and its build information. Always 1.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler",
		"platform").
		WithLabelValues(major, minor, version, b.Commit, treeState, b.Date, b.GoVersion, set["-compiler"],
			set["GOOS"]+"/"+set["GOARCH"]).Set(1)
	gaugeVec(m.registry, "vmapd_build_info", "The version of this program. Always 1.", "version", "revision").
		WithLabelValues(b.Version, b.Commit).Set(1)
}
