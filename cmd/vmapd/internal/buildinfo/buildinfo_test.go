package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want Build
	}{
		{"no information", nil, Build{"unknown", "unknown", "unknown", false, runtime.Version(), platform}},
		{
			"built without git",
			&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}},
			Build{"unknown", "unknown", "unknown", false, "go1.26.8", platform},
		},
		{
			"before the first tag",
			&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.0.0-20260301110000-91e6221c1a2b"}},
			Build{"v0.1.0-dev.20260301110000-91e6221c1a2b", "unknown", "unknown", false, "go1.26.8", platform},
		},
		{
			"a release with changes",
			&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0+dirty"}, Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "91e6221"}, {Key: "vcs.time", Value: "2026-03-01T11:00:00Z"}, {Key: "vcs.modified", Value: "true"},
			}},
			Build{"v0.1.0+dirty", "91e6221", "2026-03-01T11:00:00Z", true, "go1.26.8", platform},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Read(tt.info)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
