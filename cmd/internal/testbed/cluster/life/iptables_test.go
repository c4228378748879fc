package life

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRulesOfIPTables(t *testing.T) {
	const saved = `# Generated
*nat
:PREROUTING ACCEPT [5:300]
:VMAPD-SERVICES - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
[7:80] -A PREROUTING -j OTHER
-A PREROUTING -m comment --comment "by vmapd" -j VMAPD-SERVICES
-A VMAPD-SERVICES -d 10.0.0.1/32 -j VMAPD-B
-A VMAPD-SERVICES -d 10.0.0.2/32 -j RETURN
COMMIT
*filter
-A VMAPD-SERVICES -j DROP
COMMIT
`
	want := Table{
		"ipv4 filter rule 01 -A VMAPD-SERVICES -j DROP",
		`ipv4 nat -A PREROUTING -m comment --comment "by vmapd" -j VMAPD-SERVICES`,
		"ipv4 nat :VMAPD-SERVICES -",
		"ipv4 nat rule 01 -A VMAPD-SERVICES -d 10.0.0.1/32 -j VMAPD-B",
		"ipv4 nat rule 02 -A VMAPD-SERVICES -d 10.0.0.2/32 -j RETURN",
	}
	got, err := ParseIPTables("ipv4", saved)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
