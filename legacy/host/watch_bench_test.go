package host_test

import (
	"testing"

	"github.com/vmapd/vmapd/model/modeltest"
)

func BenchmarkLookAtIPTablesLegacy(b *testing.B) {
	w := watchRules(b, "-legacy")
	w.apply(b, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	for b.Loop() {
		if err := w.legacy.Look(); err != nil {
			b.Fatal(err)
		}
	}
}
