package host_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
)

// openIPTables opens the backend with the programs of a variant, in a network namespace of
// the test.
func openIPTables(t testing.TB, variant string) *host.IPTables {
	t.Helper()
	nettest.Enter(t)
	b, err := host.OpenIPTables(iptables.Options{}, slog.New(slog.DiscardHandler), variant)
	if err != nil {
		nettest.Missing(t, err)
	}
	return b
}

func eachVariant(t *testing.T, test func(t *testing.T, variant string)) {
	t.Helper()
	for _, v := range []string{"-legacy", "-nft"} {
		t.Run(strings.TrimPrefix(v, "-"), func(t *testing.T) { test(t, v) })
	}
}

func TestRepairsAreCounted(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		b := openIPTables(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		apply(t, b, builder.Snapshot())
		repairs := func() [2]uint64 {
			b.Resync()
			apply(t, b, builder.Snapshot())
			s := b.Stats()
			return [2]uint64{s[model.IPv4].Repairs, s[model.IPv6].Repairs}
		}
		nettest.Run(t, "", "iptables"+variant, "-t", "nat", "-F", "VMAPD-POSTROUTING")
		if got := repairs(); got != [2]uint64{1, 0} {
			t.Errorf("somebody emptied a chain: %v repairs, want 1 and 0", got)
		}
		oneWeb.Set(builder)
		if got := repairs(); got != [2]uint64{1, 0} {
			t.Errorf("a change of ours: %v repairs, want no more", got)
		}
		twoWebs.Set(builder)
		nettest.Run(t, "", "iptables"+variant, "-t", "nat", "-A", "VMAPD-POSTROUTING", "-j", "RETURN")
		if got := repairs(); got != [2]uint64{2, 0} {
			t.Errorf("a change of ours and of theirs: %v repairs, want 2 and 0", got)
		}
	})
}

// setInvalid sets the counter of the rule for invalid packets, as if it had dropped some.
func setInvalid(t *testing.T, variant string, packets int) {
	t.Helper()
	saved := nettest.Run(t, "", "iptables"+variant+"-save", "-c", "-t", "filter")
	rule := regexp.MustCompile(`(?m)^\[[0-9:]+\] (-A VMAPD-FORWARD .*--ctstate INVALID -j DROP)$`)
	if !rule.MatchString(saved) {
		t.Fatalf("no rule for invalid packets:\n%s", saved)
	}
	saved = rule.ReplaceAllString(saved, fmt.Sprintf("[%d:%d] $1", packets, 60*packets))
	nettest.Run(t, saved, "iptables"+variant+"-restore", "-c")
}

func TestInvalidPacketsAreCounted(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		b := openIPTables(t, variant)
		s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
		apply(t, b, s)
		for _, step := range []struct {
			what    string
			counter int
			want    uint64
		}{
			{"five are dropped", 5, 5},
			{"two more", 7, 7},
			{"none", 7, 7},
			{"the rule was written anew, and dropped three", 3, 10},
		} {
			setInvalid(t, variant, step.counter)
			b.Resync()
			apply(t, b, s)
			if got := b.Stats()[model.IPv4]; got.InvalidDropped != step.want || got.Repairs != 0 {
				t.Errorf("%s: %d dropped and %d repairs, want %d and 0", step.what, got.InvalidDropped, got.Repairs, step.want)
			}
		}
	})
}

// replaceRestore puts a shell script in the place of a family's iptables-restore until the test ends
// or calls mend.
func replaceRestore(t *testing.T, program, script string) (mend func()) {
	t.Helper()
	dir, path := t.TempDir(), os.Getenv("PATH")
	if err := os.WriteFile(filepath.Join(dir, program+"-restore"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+path)
	return func() { t.Setenv("PATH", path) }
}

func TestWhichFamilyFailed(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		b := openIPTables(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		apply(t, b, builder.Snapshot())
		failures := func() [2][2]uint64 {
			s := b.Stats()
			return [2][2]uint64{
				{s[model.IPv4].RestoreFailures, s[model.IPv4].PartialRestoreFailures},
				{s[model.IPv6].RestoreFailures, s[model.IPv6].PartialRestoreFailures},
			}
		}
		mend := replaceRestore(t, "ip6tables"+variant, "cat >/dev/null\necho no >&2\nexit 1")
		modeltest.NewService("ns3/more").On("172.30.0.44", "fd00:172:30::2c").TCP("", 80).Set(builder)
		for i, want := range [][2][2]uint64{{{0, 0}, {1, 1}}, {{0, 0}, {2, 1}}} {
			err := b.Apply(t.Context(), builder.Snapshot())
			if of, ok := errors.AsType[*model.FamilyError](err); !ok || of.Family != model.IPv6 || !strings.HasPrefix(err.Error(), "IPv6: ") {
				t.Errorf("error %v, want one of IPv6", err)
			}
			if got := failures(); got != want {
				t.Errorf("try %d: failures, and of these partial: %v, want %v", i+1, got, want)
			}
		}
		mend()
		apply(t, b, builder.Snapshot())
		got := b.Stats()[model.IPv6]
		if got.RestoreFailures != 2 || got.Rules["nat"] != strings.Count(rulesIn(t, "ip6tables"+variant, "nat"), "\n") {
			t.Errorf("mended: %+v", got)
		}
		if got.Repairs != 0 {
			t.Errorf("our own failures count as %d repairs of what others did", got.Repairs)
		}
	})
}

// If the table nat fails, that alone is as before: filter comes first, and is in force.
func TestAFailureOfOneTable(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		b := openIPTables(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		apply(t, b, builder.Snapshot())
		program := "iptables" + variant
		before := rulesIn(t, program, "nat")
		path, err := exec.LookPath(program + "-restore")
		if err != nil {
			t.Fatal(err)
		}
		mend := replaceRestore(t, program, fmt.Sprintf("sed '/^\\*nat/,$ s/^-A.*/& -j NOTHING/' | %s \"$@\"", path))
		modeltest.NewService("ns3/more").On("172.30.0.44", "fd00:172:30::2c").TCP("", 80).Set(builder)
		modeltest.NewSlice("ns3/more-1", "more").TCP("", 8080).Ready("10.0.0.8").Set(builder)
		if err := b.Apply(t.Context(), builder.Snapshot()); err == nil {
			t.Fatal("no error")
		}
		if diff := cmp.Diff(before, rulesIn(t, program, "nat")); diff != "" {
			t.Errorf("nat (-before +after):\n%s", diff)
		}
		if filter := rulesIn(t, program, "filter"); !strings.Contains(filter, "172.30.0.44/32") {
			t.Errorf("filter is as before:\n%s", filter)
		}
		mend()
		apply(t, b, builder.Snapshot())
		if nat := rulesIn(t, program, "nat"); !strings.Contains(nat, "172.30.0.44/32") {
			t.Errorf("mended, nat is as before:\n%s", nat)
		}
	})
}

// rulesIn returns our rules in a table.
func rulesIn(t *testing.T, program, table string) (rules string) {
	t.Helper()
	for line := range strings.Lines(nettest.Run(t, "", program+"-save", "-t", table)) {
		if strings.HasPrefix(line, "-A "+iptables.Prefix) {
			rules += line
		}
	}
	return rules
}

// A kernel without the match for one kind of Service programs all others, and names those that it refuses.
func TestAKernelWithoutAMatch(t *testing.T) {
	eachVariant(t, func(t *testing.T, variant string) {
		withoutMatches(t, variant, "recent", "sctp")
		b := openIPTables(t, variant)
		builder := modeltest.Builder(hostConfig, cluster(twoWebs)...)
		modeltest.NewService("ns3/sticky").On("172.30.0.44", "fd00:172:30::2c").TCP("", 80).Sticky(60).Set(builder)
		modeltest.NewSlice("ns3/sticky-1", "sticky").TCP("", 8080).Ready("10.0.0.8", "10.0.0.9").Set(builder)
		sctp := modeltest.NewService("ns3/sctp").On("172.30.0.45", "fd00:172:30::2d").TCP("", 99)
		sctp.Ports[0].Protocol = "SCTP"
		sctp.Set(builder)
		err := b.Apply(t.Context(), builder.Snapshot())
		failed, refused := model.Failures(err)
		names := map[model.ServicePortName]bool{
			modeltest.PortName("ns3/sctp", "", model.SCTP): true, modeltest.PortName("ns1/web", "s", model.SCTP): true,
		}
		for _, f := range model.Families {
			if failed[f] || !maps.Equal(refused[f], names) {
				t.Errorf("%v: failed %v, refused %v, want %v: %v", f, failed[f], refused[f], names, err)
			}
		}
		rules := nettest.Run(t, "", "iptables"+variant+"-save", "-t", "nat")
		for _, want := range []string{"172.30.0.44/32 -p tcp -m tcp --dport 80", "10.0.0.8:8080", "10.0.0.9:8080"} {
			if !strings.Contains(rules, want) {
				t.Errorf("nothing has %s:\n%s", want, rules)
			}
		}
		if list, err := b.Compare(t.Context(), model.IPv4, builder.Snapshot(), nil); err != nil || len(list) > 0 {
			t.Errorf("differences: %v, %v", list, err)
		}
		modeltest.NewService("ns3/sctp").Delete(builder)
		modeltest.NewService("ns1/web").Delete(builder)
		apply(t, b, builder.Snapshot())
	})
}

// withoutMatches makes the programs that write rules fail for some matches, as they do if the kernel lacks these.
func withoutMatches(t *testing.T, variant string, matches ...string) {
	t.Helper()
	for _, program := range []string{"iptables" + variant, "ip6tables" + variant} {
		path, err := exec.LookPath(program + "-restore")
		if err != nil {
			nettest.Missing(t, err)
		}
		script := "rules=$(cat)\n"
		for _, m := range matches {
			script += fmt.Sprintf("case \"$rules\" in *'-m %s '*) echo \"Couldn't load match '%[1]s'\" >&2; exit 2;; esac\n", m)
		}
		replaceRestore(t, program, script+fmt.Sprintf("printf '%%s\\n' \"$rules\" | %s \"$@\"", path))
	}
}
