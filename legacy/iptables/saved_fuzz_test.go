package iptables

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
)

// FuzzSaved reads listings of rules of other programs: whatever is in them, there is an error, or each rule is known,
// and what removes our rules and chains touches no other.
func FuzzSaved(f *testing.F) {
	for _, text := range []string{
		"*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n[1:2] -A PREROUTING -j KUBE-SERVICES\nCOMMIT\n",
		"# Table `nat' is incompatible, use 'nft' tool.\n", "*\n:\n-A \n", "[", "[] ", "-A", "-A X", ":X", "*nat\n-A X -j", "*nat\n-A X -j X\n:X",
		"*filter\n[18446744073709551616:1] -A VMAPD-FORWARD -m conntrack --ctstate INVALID -j DROP\n",
		"*nat\n:X - [0:0]\n-A X -m comment --comment \"-j KUBE-SERVICES\"\n", "*nat\n-A X -m recent --mask ffff --rsource \"\n",
	} {
		f.Add(text)
	}
	empty := Compile(nil, model.NewBuilder(model.Config{}).Snapshot().Family(model.IPv4), Options{})
	kubes := func(chain string) bool { return strings.HasPrefix(chain, "KUBE-") }
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSaved(strings.NewReader(text))
		if err != nil {
			return
		}
		rules := 0
		for _, at := range s.order {
			rules += len(s.Rules(at.table, at.chain))
		}
		want := 0
		for line := range strings.Lines(text) {
			if _, rule := cutCounters(strings.TrimSpace(line)); strings.HasPrefix(rule, "-A ") {
				want++
			}
		}
		if rules != want {
			t.Errorf("%d of %d rules of %q", rules, want, text)
		}
		for line := range strings.Lines(s.RemoveText(kubes)) {
			if name, ok := strings.CutPrefix(line, "-X "); ok && !kubes(name) {
				t.Errorf("removes chain %q of %q", name, text)
			}
		}
		_ = s.HookText()
		_ = empty.Repair(s)
	})
}
