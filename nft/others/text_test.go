package others

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model/nettest"
)

// listing returns the rules of a chain with their texts, and the errors of these.
func listing(t *testing.T, at Place) (lines []Line, errs []error) {
	t.Helper()
	lines, err := read(at)
	if err != nil {
		t.Fatal(err)
	}
	r := Ruleset{texts: map[Place]map[uint64]string{}}
	for i, l := range lines {
		if lines[i].Text, err = r.Text(t.Context(), l); err != nil {
			errs = append(errs, err)
		}
	}
	return lines, errs
}

// The text of a rule is nft's own, without control characters. What the rule does is read beside it.
func TestRulesOfOthersAreTexts(t *testing.T) {
	nettest.Enter(t)
	rules := []string{
		"tcp dport { 80, 443 } drop", "ip saddr . tcp dport @pairs drop", "ip6 saddr fd00:10::/64 accept",
		"ct state established,related accept", `iifname "eth*" oifname "cni0" accept`, "udp sport 53 jump other",
		"meta l4proto tcp reject with tcp reset", "notrack", `ip protocol icmp drop comment "no \x1b[31mping # handle 3"`,
		"ct state vmap { invalid : drop, established : accept }", "udp dport 53 counter",
	}
	nettest.Run(t, "table inet theirs { set pairs { type ipv4_addr . inet_service; elements = { 10.0.0.1 . 80 }; }\nchain other { }\n"+
		"chain forward { type filter hook forward priority 7; policy drop; "+strings.ReplaceAll(strings.Join(rules, "; "), `\x1b`, "\x1b")+";\n}\n}\n", "nft", "-f", "-")
	lines, errs := listing(t, Place{"inet", "theirs", "forward"})
	got := make([]string, 0, len(lines))
	for _, l := range lines {
		got = append(got, l.Text)
		does := [...]bool{
			strings.Contains(l.Text, "drop"), strings.HasPrefix(l.Text, "meta l4proto"), l.Text == "notrack", l.Text == rules[5],
		}
		if is := [...]bool{l.Drops, l.Rejects, l.Untracks, l.target == "other"}; is != does {
			t.Errorf("%s: drops, rejects, untracks, leads elsewhere: %v, want %v", l.Text, is, does)
		}
	}
	if diff := cmp.Diff(rules, got); diff != "" || len(errs) > 0 {
		t.Errorf("%v; -want +got:\n%s", errs, diff)
	}
}

// A rule of iptables-nft has its comment, which nft leaves out.
func TestCommentsOfIptables(t *testing.T) {
	nettest.Enter(t)
	args := []string{"-A", "FORWARD", "-p", "tcp", "-m", "comment", "--comment", "no web", "-j", "REJECT"}
	if out, err := exec.Command("iptables-nft", args...).CombinedOutput(); err != nil {
		nettest.Missing(t, "iptables-nft ", args, ": ", string(out))
	}
	lines, errs := listing(t, Place{"ip", "filter", "FORWARD"})
	if len(lines) != 1 || len(errs) > 0 || !lines[0].Rejects || !strings.HasSuffix(lines[0].Text, ` comment "no web"`) ||
		strings.HasPrefix(lines[0].Text, "handle ") {
		t.Errorf("got %+v, %v", lines, errs)
	}
}

// Rules that nft can't list have their handles, and one error of the chain says why.
func TestRulesWithoutTexts(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, `table inet theirs {
	chain forward { type filter hook forward priority 0; drop; tcp dport 22 jump { accept; }; }
}
`, "nft", "-f", "-")
	handle := func(lines []Line, i int) bool { return i < len(lines) && strings.HasPrefix(lines[i].Text, "handle ") }
	at := Place{"inet", "theirs", "forward"}
	if lines, errs := listing(t, at); len(errs) > 0 || handle(lines, 0) || !handle(lines, 1) {
		t.Errorf("a chain within a rule: %+v, %v", lines, errs)
	}
	r := Ruleset{texts: map[Place]map[uint64]string{}}
	gone := Line{Place: at, Handle: 999}
	if text, err := r.Text(t.Context(), gone); text != "handle 999" || err != nil {
		t.Errorf("a rule that has gone: %q, %v", text, err)
	}
	for _, name := range []string{"gone", "x; delete table inet theirs", "-f", "80"} {
		at.Chain = name
		if text, err := r.Text(t.Context(), Line{Place: at, Handle: 7}); text != "handle 7" || err == nil {
			t.Errorf("chain %q: %q, %v", name, text, err)
		}
	}
	at.Chain = "forward"
	t.Setenv("PATH", "")
	lines, errs := listing(t, at)
	if !handle(lines, 0) || !handle(lines, 1) || len(errs) != 1 || !strings.Contains(errs[0].Error(), "nft") {
		t.Errorf("without nft: %+v, %v", lines, errs)
	}
}
