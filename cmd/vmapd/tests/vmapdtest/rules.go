package vmapdtest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// RulesOf returns what iptables lists of us, in both families and variants.
func RulesOf(t *testing.T, ns *lab.Namespace) string {
	t.Helper()
	var kept []string
	for _, program := range []string{
		"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save",
	} {
		out, err := ns.Command(t.Context(), program).Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "VMAPD-") {
				line, _, _ = strings.Cut(line, " [") // counters
				kept = append(kept, program+": "+strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(kept, "\n")
}

// LeftBehind are the programs of the two families, with what kube-proxy has there.
var LeftBehind = map[string]string{"iptables": "iptables.rules", "ip6tables": "ip6tables.rules"}

// AsKubeProxyLeaves is a listing of a node on which kube-proxy ran.
func AsKubeProxyLeaves(t *testing.T, program string) string {
	t.Helper()
	return testaid.Read(t, filepath.Join(Testdata(t), "kube-proxy", LeftBehind[program]))
}

// LeaveRules puts kube-proxy's rules on a node.
func LeaveRules(t *testing.T, node *lab.Namespace, variant string) {
	t.Helper()
	for program := range LeftBehind {
		Feed(t, node, AsKubeProxyLeaves(t, program), program+"-"+variant+"-restore")
	}
}
