package iptables_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A jump is put back where it is missing, and is there once. In the table nat, it is before the rules of others; in the
// table filter, it stays where it is.
func TestJumpsArePutBack(t *testing.T) {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()).Family(model.IPv4)
	good := load(t, iptables.Compile(nil, s, iptables.Options{})).Save()
	const comment = "-m comment --comment \"Kubernetes Services, by vmapd\" "
	const (
		pre     = "-A PREROUTING " + comment + "-j VMAPD-SERVICES\n"
		refuse  = "-A FORWARD " + comment + "-j VMAPD-FORWARD\n"
		accept  = "-A FORWARD " + comment + "-j VMAPD-ACCEPT\n"
		both    = refuse + accept
		natRule = "-A PREROUTING -p tcp -j ACCEPT\n"
		drop    = "-A FORWARD -p tcp -j DROP\n"
		last    = "-A FORWARD -j REJECT --reject-with icmp-port-unreachable\n"
	)
	for _, tt := range []struct{ name, normally, instead, want string }{
		{"nothing to do", pre, pre, pre},
		{"first already", pre, pre + natRule, pre + natRule},
		{"missing", pre, "", pre},
		{"twice", pre, pre + pre, pre},
		{"behind somebody else's", pre, natRule + pre, pre + natRule},
		{"before and behind somebody else's", pre, pre + natRule + pre, pre + natRule},
		{"of another version", pre, "-A PREROUTING -j VMAPD-SERVICES\n" + natRule, pre + natRule},
		{"beside one of another version", pre, pre + "-A PREROUTING -p udp -g VMAPD-SERVICES\n", pre},
		{"filter: behind somebody else's", both, drop + both, drop + both},
		{"filter: around somebody else's", both, refuse + drop + accept, refuse + drop + accept},
		{"filter: in another order", both, accept + drop + refuse, accept + drop + refuse},
		{"filter: missing", both, drop, refuse + drop + accept},
		{"filter: missing, and others have the last word", both, drop + last, refuse + drop + accept + last},
		{"filter: the last is missing", both, refuse + drop + last + drop, refuse + drop + accept + last + drop},
		{"filter: the first is missing", both, drop + accept, refuse + drop + accept},
		{"filter: twice", both, refuse + drop + refuse + accept, drop + refuse + accept},
		{
			"filter: of another version", both, "-A FORWARD -j VMAPD-FORWARD\n" + drop + "-A FORWARD -p tcp -j VMAPD-FILTER\n" + last,
			refuse + drop + accept + last,
		},
		{"filter: a comment that looks like a jump", both, "-A FORWARD -m comment --comment \"-j VMAPD-FORWARD\" -j RETURN\n", refuse +
			"-A FORWARD -m comment --comment \"-j VMAPD-FORWARD\" -j RETURN\n" + accept},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listing := strings.Replace(good, tt.normally, tt.instead, 1)
			if tt.instead != tt.normally && listing == good {
				t.Fatalf("there is no jump:\n%s", good)
			}
			tables := iptsim.NewTables(model.IPv4)
			if err := tables.Restore(listing); err != nil {
				t.Fatal(err)
			}
			if err := tables.Restore(saved(t, tables).HookText()); err != nil {
				t.Fatal(err)
			}
			testaid.Equal(t, "what is listed then", strings.Replace(good, tt.normally, tt.want, 1), tables.Save())
			testaid.Equal(t, "what is left to do", "", saved(t, tables).HookText())
		})
	}
}
