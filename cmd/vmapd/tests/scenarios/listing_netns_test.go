package scenarios

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"regexp"
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
	list := func(t *testing.T, s *scenario, o kernel.Options) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			from, to := newNamespace(t), newNamespace(t)
			snapshot, _ := s.snapshot(t)
			if err := vmapdtest.OpenKernel(t, from, o).Apply(t.Context(), snapshot); err != nil {
				t.Fatal(err)
			}
			for _, f := range model.Families {
				family := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
				args := []string{"list", "table", family, "vmapd"}
				text := listing(t, from, args)
				if want := "table " + family + " vmapd {"; !strings.HasPrefix(text, want) {
					t.Errorf("nft lists no %q:\n%s", want, text)
				}
				out, err := from.Command(t.Context(), "nft", append([]string{"-j"}, args...)...).Output()
				// nft 0.9.8 says so, and leaves the statement out.
				out = bytes.ReplaceAll(out, []byte("warning: stmt ops map have no json callback\n"), nil)
				if err != nil || !json.Valid(out) {
					t.Errorf("nft lists no JSON: %v\n%s", err, out)
				}
				if counts := strings.Contains(text, "set service-counters {"); counts != o.Counters {
					t.Errorf("there are counters: %v, want %v", counts, o.Counters)
				}
				t.Run(family+" loaded again", func(t *testing.T) { reload(t, to, text, args) })
			}
		})
	}
	for _, s := range scenarios(t) {
		list(t, s, kernel.Options{})
	}
	// Connections to these are forwarded, refused, and dropped by source ranges.
	t.Run("with counters", func(t *testing.T) {
		counted := 0
		for _, s := range scenarios(t) {
			if s.name == "affinity-and-source-ranges" || s.name == "source-ranges" || s.name == "no-endpoints" {
				list(t, s, kernel.Options{Counters: true})
				counted++
			}
		}
		if counted == 0 {
			t.Error("no scenario was listed with counters")
		}
	})
}

// owned is the beginning of a table, whose owner takes two lines and the end of the first one.
var owned = regexp.MustCompile(`^(table ip6? vmapd \{).*\n(?:\tflags .*\n)?(\tcomment .*\n)\n?`)

// What some versions of nft can't load.
const noNumbers = "this nft can't handle a number in a concatenated key"

// listing lists a table.
func listing(t *testing.T, ns *lab.Namespace, args []string) string {
	t.Helper()
	out, err := ns.Command(t.Context(), "nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// reload loads a listing, which nft then lists as before. nft 0.9.8 (of 2021) can't load numbers in
// concatenated keys, by which endpoints are chosen.
func reload(t *testing.T, ns *lab.Namespace, text string, args []string) {
	t.Helper()
	skipUnparsable(t, text)
	text = owned.ReplaceAllString(text, "$1\n$2") // the table would end with nft, its owner
	c := ns.Command(t.Context(), "nft", "-f", "-")
	c.Stdin = strings.NewReader(text)
	out, err := c.CombinedOutput()
	for _, s := range []string{
		"can not use variable sized data types (integer) in concat expressions",
		"packet mark), expression has type concatenation",
	} {
		if err != nil && strings.Contains(string(out), s) {
			t.Skip(noNumbers)
		}
	}
	if err != nil {
		t.Fatalf("nft -f: %v\n%s", err, out)
	}
	if got := vmapdtest.Feed(t, ns, "", "nft", args...); got != text {
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
