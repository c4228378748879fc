package host_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
)

// watchable is a backend with iptables rules.
type watchable interface {
	Apply(ctx context.Context, s *model.Snapshot) error
	Resync()
	Watch(changed chan<- struct{}) *host.Watch
	Variant() string
}

// ruleWatch is a watch of a backend's rules.
type ruleWatch struct {
	*host.Watch
	variant string
	backend watchable
	told    chan struct{}
}

// watchRules opens the iptables backend, with a watch of its rules, in a network namespace of the test.
func watchRules(t testing.TB, variant string) *ruleWatch {
	t.Helper()
	return watchBackend(openIPTables(t, variant), variant)
}

func watchBackend(b watchable, variant string) *ruleWatch {
	w := &ruleWatch{variant: variant, backend: b, told: make(chan struct{}, 1)}
	w.Watch = b.Watch(w.told)
	return w
}

func (w *ruleWatch) apply(t testing.TB, s *model.Snapshot) {
	t.Helper()
	if err := w.backend.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// look looks for each canary.
func (w *ruleWatch) look() {
	const most = 12 // three tables, of four chains at most
	for range most {
		w.Look()
	}
}

// run runs a command, where iptables and ip6tables are those of the variant.
func (w *ruleWatch) run(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if strings.HasSuffix(words[0], "tables") {
		words[0] += w.variant
	}
	nettest.Run(t, "", words[0], words[1:]...)
}

// mustNotice looks at all canaries, and checks whether a change is noticed.
func (w *ruleWatch) mustNotice(t *testing.T, what string, want bool) {
	t.Helper()
	w.look()
	if got := len(w.told) > 0; got != want {
		t.Errorf("%s: noticed: %v, want %v", what, got, want)
	}
}

// mustRepair makes a foreign change, which must be noticed, and compares the tables after the repair, which must not be.
func (w *ruleWatch) mustRepair(t *testing.T, command string, tables ...string) {
	t.Helper()
	s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
	w.apply(t, s)
	w.mustNotice(t, "nothing", false)
	before := w.list(t, tables)
	w.run(t, command)
	w.mustNotice(t, command, true)
	<-w.told
	w.backend.Resync()
	w.apply(t, s)
	if after := w.list(t, tables); after != before {
		t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
	}
	w.mustNotice(t, "the repair", false)
}

// list lists tables of both families.
func (w *ruleWatch) list(t *testing.T, tables []string) (all string) {
	t.Helper()
	for _, table := range tables {
		all += nettest.Listed(t, "iptables"+w.variant, table) + nettest.Listed(t, "ip6tables"+w.variant, table)
	}
	return all
}

func TestFlushedTablesAreNoticedAndRepaired(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		for _, command := range []string{
			"iptables -t nat -F", "ip6tables -F", "ip6tables -D OUTPUT 1", "iptables -t nat -D POSTROUTING 1", "iptables -D FORWARD 2",
		} {
			t.Run(command, func(t *testing.T) {
				w := watchRules(t, variant)
				w.mustRepair(t, command, "nat", "filter")
			})
		}
		if variant == "-nft" {
			t.Run("nft", func(t *testing.T) {
				w := watchRules(t, variant)
				w.mustRepair(t, "nft flush ruleset", "nat", "filter")
			})
		}
	})
}

// What leaves the jumps as they are is repaired when everything is compared.
func TestAResyncRepairsTheRest(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		for _, command := range []string{
			"iptables -t nat -F VMAPD-SERVICES",
			"ip6tables -t nat -D VMAPD-POSTROUTING 1",
			"iptables -t filter -I VMAPD-FORWARD -j DROP",
			"iptables -t nat -I OUTPUT -p udp -j VMAPD-SERVICES",
			"iptables -t nat -A OUTPUT -p tcp -g VMAPD-SERVICES",
			"iptables -t nat -I PREROUTING -p udp -j ACCEPT",
		} {
			t.Run(command, func(t *testing.T) {
				w := watchRules(t, variant)
				s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
				w.apply(t, s)
				before := w.list(t, []string{"nat", "filter"})
				w.run(t, command)
				w.mustNotice(t, command, false)
				w.backend.Resync()
				w.apply(t, s)
				theirs := "[0:0] -A PREROUTING -p udp -j ACCEPT\n" // a rule of others stays, behind our jump
				after := w.list(t, []string{"nat", "filter"})
				if kept := strings.Count(after, theirs) == 1; kept != strings.HasSuffix(command, "ACCEPT") {
					t.Errorf("the rule of others is there: %v", kept)
				}
				if after = strings.Replace(after, theirs, "", 1); after != before {
					t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
				}
			})
		}
	})
}

// The backend IPVS has rules, too, with the variant that the administrator chose.
func TestForeignChangesOfIPVSRulesAreNoticedAndRepaired(t *testing.T) {
	for _, command := range []string{"iptables -t mangle -F", "ip6tables -t nat -F", "iptables -F"} {
		t.Run(command, func(t *testing.T) {
			nettest.Enter(t)
			b, _ := openIPVS(t, ipvs.Options{})
			variant := "-legacy"
			if strings.Contains(b.Variant(), "nf_tables") {
				variant = "-nft"
			}
			w := watchBackend(b, variant)
			w.mustRepair(t, command, "mangle", "nat", "filter")
		})
	}
}

func TestChangesOfOthersRulesAreNotNoticed(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		w := watchRules(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		w.apply(t, builder.Snapshot())
		oneWeb.Set(builder)
		for _, command := range []string{
			"iptables -t nat -N AAA",
			"iptables -t nat -A AAA -p tcp -j RETURN",
			"iptables -t nat -A PREROUTING -j AAA",
			"iptables -t nat -F AAA",
			"iptables -P FORWARD DROP",
			"iptables -t mangle -A FORWARD -j ACCEPT",
			"iptables -t mangle -F",
			"iptables -N VMAPD-IPVS-OTHER", // of the backend IPVS
			"iptables -A VMAPD-IPVS-OTHER -j RETURN",
			"iptables -A FORWARD -j VMAPD-IPVS-OTHER",
			"ip6tables -A FORWARD -j ACCEPT",
			"ip6tables -N AAA",
			"nft add table ip other",
		} {
			w.run(t, command)
			w.backend.Resync()
			w.apply(t, builder.Snapshot()) // nor are our own
			w.Look()
		}
		w.mustNotice(t, "changes of others", false)
	})
}

// After an Apply that failed, nobody knows what is there; the next one looks.
func TestAnApplyThatFailsIsNoForeignChange(t *testing.T) {
	const program = "iptables-legacy"
	w := watchRules(t, "-legacy")
	builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
	w.apply(t, builder.Snapshot())
	path, err := exec.LookPath(program + "-restore")
	if err != nil {
		t.Fatal(err)
	}
	mend := replaceRestore(t, program, path+` "$@"; exit 1`)
	oneWeb.Set(builder)
	if err := w.backend.Apply(t.Context(), builder.Snapshot()); err == nil {
		t.Fatal("the broken program works")
	}
	nettest.Run(t, "", program, "-t", "nat", "-F")
	w.look()
	mend()
	w.apply(t, builder.Snapshot())
	w.mustNotice(t, "a failure and a retry", false)
}

// A family that can't be watched is logged once, as long as it can't, and does not hide what happens to the other.
func TestAFamilyThatCannotBeWatched(t *testing.T) {
	const program, variant = "iptables-legacy", "-legacy"
	path, err := exec.LookPath(program)
	if err != nil {
		nettest.Missing(t, err)
	}
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	testaid.Write(t, filepath.Join(dir, program), "#!/bin/sh\ntest -e "+broken+" && exit 4\nexec "+path+" \"$@\"\n")
	if err := os.Chmod(filepath.Join(dir, program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	nettest.Enter(t)
	var log testlog.Log
	b, err := host.OpenIPTables(iptables.Options{}, slog.New(slog.NewTextHandler(&log, nil)), variant)
	if err != nil {
		nettest.Missing(t, err)
	}
	w := watchBackend(b, variant)
	w.apply(t, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	testaid.Write(t, broken, "")
	w.mustNotice(t, "nothing", false)
	if got := log.Count("cannot watch our rules"); got != 1 {
		t.Errorf("a family that fails each time is logged %d times, want once:\n%s", got, log.String())
	}
	nettest.Run(t, "", "ip6tables"+variant, "-t", "nat", "-F")
	w.mustNotice(t, "a change of IPv6, while IPv4 can't be watched", true)
}
