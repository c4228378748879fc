package iptables_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Jumps come before the rules of others, once, after any listing.
func TestJumpsComeFirst(t *testing.T) {
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()).Family(model.IPv4)
	good := load(t, iptables.Compile(nil, s, iptables.Options{})).Save()
	jump := "-A OUTPUT -m conntrack --ctstate NEW -m comment --comment \"Kubernetes Services, by vmapd\" -j VMAPD-FILTER\n"
	const theirs = "-A OUTPUT -p tcp -j ACCEPT\n"
	for _, tt := range []struct{ name, instead string }{
		{"nothing to do", jump},
		{"first already", jump + theirs},
		{"missing", ""},
		{"twice", jump + jump},
		{"behind somebody else's", theirs + jump},
		{"before and behind somebody else's", jump + theirs + jump},
		{"of another version", "-A OUTPUT -j VMAPD-FILTER\n" + theirs},
		{"beside one of another version", jump + "-A OUTPUT -p udp -g VMAPD-SERVICES\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listing := strings.Replace(good, jump, tt.instead, 1)
			if tt.instead != jump && listing == good {
				t.Fatalf("there is no jump:\n%s", good)
			}
			tables := iptsim.NewTables(model.IPv4)
			if err := tables.Restore(listing); err != nil {
				t.Fatal(err)
			}
			if err := tables.Restore(saved(t, tables).HookText()); err != nil {
				t.Fatal(err)
			}
			want := jump
			if strings.Contains(tt.instead, theirs) {
				want += theirs
			}
			equal(t, "what is listed then", strings.Replace(good, jump, want, 1), tables.Save())
			equal(t, "what is left to do", "", saved(t, tables).HookText())
		})
	}
}

func TestListingsThatNobodyKnows(t *testing.T) {
	if _, err := iptables.ParseSaved(strings.NewReader("*nat\nwhat is this\n")); err == nil {
		t.Error("no error about a line that nobody knows")
	}
}
