package scenarios

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
)

// TestListings lists each scenario's tables with this machine's nft, as text and as JSON, and
// loads the text again, in another namespace.
func TestListings(t *testing.T) {
	t.Parallel()
	nettest.Need(t)
	vmapdtest.NeedNFT(t)
	version, err := exec.Command("nft", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", version)
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			from, to := newNamespace(t), newNamespace(t)
			// Connections to these are forwarded, refused, and dropped by source ranges.
			counted := []string{"affinity-and-source-ranges", "source-ranges", "no-endpoints"}
			o := kernel.Options{Counters: slices.Contains(counted, s.name)}
			if err := vmapdtest.OpenKernel(t, from, o).Apply(t.Context(), s.load(t).Snapshot); err != nil {
				t.Fatal(err)
			}
			text := vmapdtest.Feed(t, from, "", "nft", "list", "ruleset")
			out, err := from.Command(t.Context(), "nft", "-j", "list", "ruleset").Output()
			// nft 0.9.8 says so, and leaves the statement out.
			out = bytes.ReplaceAll(out, []byte("warning: stmt ops map have no json callback\n"), nil)
			if err != nil || !json.Valid(out) {
				t.Errorf("nft lists no JSON: %v\n%s", err, out)
			}
			again := ""
			for _, f := range model.Families {
				table := tableOf(t, text, f)
				if has := strings.Contains(table, "set service-counters {"); has != o.Counters {
					t.Errorf("there are counters: %v, want %v", has, o.Counters)
				}
				if parsable(table) {
					again += owned.ReplaceAllString(table, "$1\n$2") // the table would end with nft, its owner
				}
			}
			reload(t, to, again)
		})
	}
}

// owned is the beginning of a table, whose owner takes two lines and the end of the first one.
var owned = regexp.MustCompile(`^(table ip6? vmapd \{).*\n(?:\tflags .*\n)?(\tcomment .*\n)\n?`)

// reload loads a listing, which nft then lists as before. nft 0.9.8 (of 2021) can't load numbers in
// concatenated keys, by which endpoints are chosen.
func reload(t *testing.T, ns *lab.Namespace, text string) {
	t.Helper()
	c := ns.Command(t.Context(), "nft", "-f", "-")
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	for _, s := range []string{
		"can not use variable sized data types (integer) in concat expressions",
		"packet mark), expression has type concatenation",
	} {
		if err != nil && strings.Contains(string(out), s) {
			t.Skip("this nft can't handle a number in a concatenated key")
		}
	}
	if err != nil {
		t.Fatalf("nft -f: %v\n%s", err, out)
	}
	if got := vmapdtest.Feed(t, ns, "", "nft", "list", "ruleset"); got != text {
		t.Errorf("listed again:\n%s\nwant:\n%s", got, text)
	}
}

func newNamespace(t *testing.T) *lab.Namespace {
	t.Helper()
	ns, err := lab.NewNamespace("listing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}
