package host_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// watchable is a backend with iptables rules.
type watchable interface {
	Apply(ctx context.Context, s *model.Snapshot) error
	Resync()
	TellWriting(began func(process int) (ended func())) bool
	WatchLegacy(log *slog.Logger, changed chan<- struct{}) (*host.LegacyWatch, error)
}

// ruleWatch is a watch of a backend's rules in either variant.
type ruleWatch struct {
	variant string
	backend watchable
	told    chan struct{}
	nft     *kernel.RuleWatch
	legacy  *host.LegacyWatch
	probe   string // changes a chain of ours
}

// watchRules opens the iptables backend, with a watch of its rules, in a network namespace of the test.
func watchRules(t testing.TB, variant string) *ruleWatch {
	t.Helper()
	return watchBackend(t, openIPTables(t, variant), variant, iptables.IsOurs)
}

func watchBackend(t testing.TB, b watchable, variant string, ours func(chain string) bool) *ruleWatch {
	t.Helper()
	w := &ruleWatch{variant: variant, backend: b, told: make(chan struct{}, 1), probe: "iptables -t nat -A VMAPD-POSTROUTING -j RETURN"}
	usesNFT := b.TellWriting(func(process int) func() {
		w.ignore(t, process)
		return func() { w.ignore(t, 0) }
	})
	if usesNFT != (variant == "-nft") {
		t.Fatalf("rules of iptables%s: in iptables-nft: %v", variant, usesNFT)
	}
	var err error
	if usesNFT {
		w.nft, err = kernel.WatchRules(kernel.RuleWatchOptions{
			Log: slog.New(slog.DiscardHandler), Prefix: iptables.Prefix, Ours: ours, Changed: w.told,
		})
		if err != nil {
			t.Fatal(err)
		}
		runUntilTheEnd(t, w.nft.Run)
	}
	if w.legacy, err = b.WatchLegacy(slog.New(slog.DiscardHandler), w.told); err != nil {
		t.Fatal(err)
	}
	if (w.legacy != nil) == usesNFT {
		t.Fatalf("rules of iptables%s: a watch of iptables-legacy: %v", variant, w.legacy != nil)
	}
	return w
}

func runUntilTheEnd(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the watch ended with: %v", err)
		}
	})
}

func (w *ruleWatch) apply(t testing.TB, s *model.Snapshot) {
	t.Helper()
	if err := w.backend.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func (w *ruleWatch) ignore(t testing.TB, port int) {
	t.Helper()
	if err := w.nft.Ignore(uint32(port)); err != nil {
		t.Error(err)
	}
}

// look looks at the tables of iptables-legacy; of iptables-nft, the kernel tells.
func (w *ruleWatch) look(t *testing.T) {
	t.Helper()
	if w.legacy == nil {
		return
	}
	if err := w.legacy.Look(); err != nil {
		t.Fatal(err)
	}
}

func (w *ruleWatch) changes() uint64 {
	if w.legacy != nil {
		return w.legacy.Changes()
	}
	return w.nft.ForeignChanges().Changes
}

// run runs a command, where iptables and ip6tables are those of the variant.
func (w *ruleWatch) run(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if strings.HasSuffix(words[0], "tables") {
		words[0] += w.variant
	}
	output(t, words[0], words[1:]...)
}

// mustHaveNoticed makes one foreign change of a family's rules, waits until it is noticed, and
// compares the number of those until then. The kernel tells of changes in their order.
func (w *ruleWatch) mustHaveNoticed(t *testing.T, what string, want uint64) {
	t.Helper()
	w.look(t)
	if w.legacy != nil {
		if got := w.changes(); got != want {
			t.Errorf("%s: %d changes are noticed, want %d", what, got, want)
		}
		return
	}
	w.run(t, w.probe)
	w.waitFor(t, want+1)
	if got := w.changes(); got != want+1 {
		t.Errorf("%s: %d changes are noticed, want %d", what, got-1, want)
	}
}

// waitFor waits until so many changes are noticed.
func (w *ruleWatch) waitFor(t *testing.T, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); w.changes() < want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d changes are noticed, want %d", w.changes(), want)
		}
		w.look(t)
		time.Sleep(time.Millisecond)
	}
}

// foreign are changes of our rules in one table, by commands for one family.
var foreign = map[string]string{
	"a table flushed":                       "iptables -t nat -F",
	"the other table flushed":               "iptables -t filter -F",
	"a jump deleted":                        "iptables -t nat -D PREROUTING 1",
	"a jump to refusals deleted":            "iptables -t filter -D OUTPUT 1",
	"a chain of ours emptied":               "iptables -t nat -F VMAPD-SERVICES",
	"a rule of ours deleted":                "iptables -t nat -D VMAPD-POSTROUTING 1",
	"a rule added to a chain of ours":       "iptables -t filter -I VMAPD-FORWARD -j DROP",
	"a jump of others to a chain of ours":   "iptables -t nat -I OUTPUT -p udp -j VMAPD-SERVICES",
	"a jump of ours a second time, by -g":   "iptables -t nat -A OUTPUT -p tcp -g VMAPD-SERVICES",
	"a table flushed, IPv6":                 "ip6tables -t nat -F",
	"the other table flushed, IPv6":         "ip6tables -t filter -F",
	"a jump deleted, IPv6":                  "ip6tables -t nat -D PREROUTING 1",
	"a chain of ours emptied, IPv6":         "ip6tables -t nat -F VMAPD-SERVICES",
	"a rule of ours deleted, IPv6":          "ip6tables -t nat -D VMAPD-POSTROUTING 1",
	"a rule added to a chain of ours, IPv6": "ip6tables -t filter -I VMAPD-FORWARD -j DROP",
}

func TestForeignChangesOfRulesAreNoticedAndRepaired(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		for what, command := range foreign {
			t.Run(what, func(t *testing.T) {
				watchRules(t, variant).mustRepair(t, command, "nat", "filter")
			})
		}
	})
}

// mustRepair makes a foreign change, which must be noticed, and compares the tables after the
// repair, which must not be.
func (w *ruleWatch) mustRepair(t *testing.T, command string, tables ...string) {
	t.Helper()
	s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
	w.apply(t, s)
	w.look(t)
	before := w.list(t, tables)
	w.run(t, command)
	w.waitFor(t, 1)
	<-w.told
	w.backend.Resync()
	w.apply(t, s)
	if after := w.list(t, tables); after != before {
		t.Errorf("after the repair:\n%s\nbefore:\n%s", after, before)
	}
	w.mustHaveNoticed(t, "the repair", 1)
}

// list lists tables of both families.
func (w *ruleWatch) list(t *testing.T, tables []string) (all string) {
	t.Helper()
	for _, table := range tables {
		all += listed(t, "iptables"+w.variant, table) + listed(t, "ip6tables"+w.variant, table)
	}
	return all
}

// The backend IPVS has rules, too, with the variant that the administrator chose.
func TestForeignChangesOfTheCompanionAreNoticedAndRepaired(t *testing.T) {
	for _, command := range []string{
		"iptables -t mangle -F",
		"iptables -t mangle -D FORWARD 1",
		"ip6tables -t nat -F",
		"ip6tables -F VMAPD-IPVS-FILTER",
	} {
		t.Run(command, func(t *testing.T) {
			enterNamespace(t)
			b, _ := openIPVS(t, ipvs.Options{})
			variant := "-legacy"
			if strings.Contains(b.Variant(), "nf_tables") {
				variant = "-nft"
			}
			w := watchBackend(t, b, variant, iptables.IsIPVS)
			w.probe = "iptables -t nat -A VMAPD-IPVS-MASQ -j RETURN"
			w.mustRepair(t, command, "mangle", "nat", "filter")
		})
	}
}

func TestOurOwnChangesOfRulesAreNotNoticed(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		w := watchRules(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		for i := range 20 {
			if i%2 == 0 {
				oneWeb.Set(builder)
			} else {
				twoWebs.Set(builder)
			}
			if i%5 == 0 {
				w.backend.Resync()
			}
			w.apply(t, builder.Snapshot())
			w.look(t)
		}
		w.mustHaveNoticed(t, "our own changes", 0)
	})
}

func TestChangesOfOthersRulesAreNotNoticed(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		w := watchRules(t, variant)
		w.apply(t, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
		for _, command := range []string{
			"iptables -t nat -N AAA",
			"iptables -t nat -A AAA -p tcp -j RETURN",
			"iptables -t nat -A PREROUTING -j AAA",
			"iptables -t nat -I PREROUTING -p udp",
			"iptables -t nat -N ZZZ",
			"iptables -t nat -A AAA -g ZZZ",
			"iptables -t nat -D PREROUTING 1",
			"iptables -t nat -F AAA",
			"iptables -t nat -X ZZZ",
			"iptables -P FORWARD DROP",
			"iptables -t mangle -A FORWARD -j ACCEPT",
			"iptables -t mangle -F",
			"iptables -N VMAPD-IPVS-OTHER", // of the backend IPVS
			"iptables -A VMAPD-IPVS-OTHER -j RETURN",
			"iptables -A FORWARD -j VMAPD-IPVS-OTHER",
			"ip6tables -A FORWARD -j ACCEPT",
			"ip6tables -N AAA",
			"nft add table ip other",
			"nft add chain ip other c",
			"nft add rule ip other c counter",
			"nft flush table ip other",
		} {
			w.run(t, command)
			w.look(t)
		}
		w.mustHaveNoticed(t, "changes of others", 0)
	})
}

// Who deletes our rules again as soon as they are there is noticed each time, and once for
// each repair.
func TestEachChangeAfterARepairIsNoticed(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		w := watchRules(t, variant)
		s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
		w.apply(t, s)
		for i := range uint64(5) {
			w.run(t, "iptables -t nat -D VMAPD-POSTROUTING 1")
			w.waitFor(t, i+1)
			w.look(t) // and has told already
			w.look(t)
			w.backend.Resync()
			w.apply(t, s)
		}
		w.mustHaveNoticed(t, "five changes", 5)
	})
}

// A table that is gone is a change, here in another network namespace. A look makes none.
func TestTheWatchMakesNoTable(t *testing.T) {
	w := watchRules(t, "-legacy")
	w.apply(t, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	enterNamespace(t)
	tables := func() (all string) {
		for _, names := range []string{"ip_tables_names", "ip6_tables_names"} {
			list, err := os.ReadFile("/proc/thread-self/net/" + names)
			if err != nil {
				t.Fatal(err)
			}
			all += string(list)
		}
		return all
	}
	before := tables()
	elsewhere, err := w.backend.WatchLegacy(slog.New(slog.DiscardHandler), w.told)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := elsewhere.Look(); err != nil {
			t.Fatal(err)
		}
	}
	if got := elsewhere.Changes(); got != 2 {
		t.Errorf("%d changes are noticed, want one for each family", got)
	}
	if after := tables(); after != before {
		t.Errorf("a look made tables: there were %q, and there are %q", before, after)
	}
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
	w.look(t)
	mend()
	w.apply(t, builder.Snapshot())
	w.mustHaveNoticed(t, "a failure and a retry", 0)
}

// A watch that fails is one line of the log. The other family's goes on.
func TestAFailedLookIsLoggedOnce(t *testing.T) {
	b := openIPTables(t, "-legacy")
	var log strings.Builder
	w, err := b.WatchLegacy(slog.New(slog.NewTextHandler(&log, nil)), make(chan struct{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	applyRules(t, b, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	if err := w.Break(); err != nil {
		t.Fatal(err)
	}
	output(t, "ip6tables-legacy", "-t", "nat", "-F")
	for range 3 {
		if err := w.Look(); err == nil {
			t.Error("a broken watch works")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || w.Changes() != 1 {
		t.Errorf("%d errors in the log, want 1, and %d changes, want that of IPv6:\n%s", n, w.Changes(), &log)
	}
}

// If our rules were counted otherwise than the kernel does, that would cost one comparison, and no
// more until the table changes: the comparison finds no difference.
func TestAFalseAlarmIsGivenOnce(t *testing.T) {
	w := watchRules(t, "-legacy")
	s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
	families := uint64(2)
	for range 3 {
		w.apply(t, s)
		w.legacy.Miscount()
		for range 3 {
			w.look(t)
		}
		w.backend.Resync()
	}
	if got := w.changes(); got != families {
		t.Errorf("%d changes are noticed, want one for each family", got)
	}
}
