package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// The page From kube-proxy has the differences that preflight knows for the backend nftables.
func TestThePageHasTheDifferences(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| Former mode | Difference | Remedy |\n|---|---|---|\n")
	for _, r := range slices.Concat(differences, notes) {
		if r.to != nil && !slices.Contains(r.to, nftables) || r.id == "backend" || r.id == "problem" {
			continue
		}
		remedy := r.remedy
		if r.own != "" {
			remedy = strings.TrimPrefix(remedy+"; `"+r.own+"` in vmapd's file", "; ")
		}
		what := strings.TrimSpace("**" + r.title + ".** " + r.change)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cmp.Or(strings.Join(r.from, ", "), "any"), what, remedy)
	}
	page := strings.ReplaceAll(b.String(), " |  |", " | |") + "\n"
	testaid.Tables(t, "../../docs/from-kube-proxy.md", map[string]string{"differences": page})
}
