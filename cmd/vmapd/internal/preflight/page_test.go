package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
)

// Each row of the page From kube-proxy is one that preflight knows, and has what it is taken apart by.
func TestPreflightKnowsThePagesRows(t *testing.T) {
	for _, cells := range docs.Rows(docs.FromKubeProxy, "differences") {
		known := slices.ContainsFunc(slices.Concat(differences, notes), func(r row) bool {
			text := strings.TrimSpace("**" + r.title + ".** " + r.change)
			return cells[1] == `<a id="`+r.id+`"></a>`+text && r.title != ""
		})
		if !known {
			t.Errorf("preflight does not know: %s", cells[1])
		}
	}
}
