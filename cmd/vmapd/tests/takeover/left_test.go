package takeover

import (
	"os/exec"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// leftByBackends returns what backends have on a node, by backend.
func leftByBackends(t *testing.T, w *lab.World) map[string]string {
	t.Helper()
	has := map[string]string{}
	note := func(backend, what string) {
		if what != "" {
			has[backend] += what + "\n"
		}
	}
	for rule := range strings.Lines(vmapdtest.RulesOf(t, w.Node)) {
		backend := "iptables"
		if strings.Contains(rule, "VMAPD-IPVS-") {
			backend = "ipvs"
		}
		note(backend, rule)
	}
	for _, table := range []string{"table ip vmapd", "table ip6 vmapd"} {
		if strings.Contains(vmapdtest.ListRuleset(t, w.Node), table) {
			note("nftables", table)
		}
	}
	for _, program := range [][]string{{"ipset", "list", "-n"}, {"ip", "-br", "link"}, {"ipvsadm", "-Sn"}} {
		if _, err := exec.LookPath(program[0]); err != nil {
			continue
		}
		out, _ := w.Node.Command(t.Context(), program[0], program[1:]...).Output() // where the kernel has none, it fails
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "VMAPD") || strings.Contains(line, "vmapd") || strings.HasPrefix(line, "-") {
				note("ipvs", line)
			}
		}
	}
	return has
}

// proxierRules are the permissions of system:node-proxier, which clusters give kube-proxy.
func proxierRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"services", "endpoints"}},
		{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		{Verbs: []string{"create", "patch", "update"}, APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}},
		{Verbs: []string{"list", "watch"}, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		{Verbs: []string{"list", "watch"}, APIGroups: []string{"networking.k8s.io"}, Resources: []string{"servicecidrs"}},
	}
}
