package others

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

func load(t testing.TB, text string) {
	t.Helper()
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}

// Rules that set a mark or keep a packet from being tracked are known as such, also those of iptables-nft.
func TestRulesThatMark(t *testing.T) {
	nettest.Enter(t)
	for _, args := range []string{
		"-t raw -A PREROUTING -j NOTRACK", "-t raw -A PREROUTING -j CT --notrack", "-t raw -A PREROUTING -j CT --zone 1",
		"-t mangle -A PREROUTING -j MARK --set-xmark 0x80/0xff", "-t mangle -A PREROUTING -j CONNMARK --set-xmark 0x80/0xff",
		"-t mangle -A PREROUTING -j CONNMARK --save-mark", "-t mangle -A PREROUTING -j CONNMARK --restore-mark", "-t mangle -A PREROUTING -j LOG",
	} {
		if out, err := exec.Command("iptables-nft", strings.Fields(args)...).CombinedOutput(); err != nil {
			nettest.Missing(t, "iptables-nft ", args, ": ", string(out))
		}
	}
	load(t, "table inet theirs { chain early { type filter hook prerouting priority raw; notrack; meta mark set 1; ct mark set 1; counter; meta nftrace set 1;\n}\n}\n")
	r, err := ReadRuleset()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for _, at := range []Place{{"ip", "raw", "PREROUTING"}, {"ip", "mangle", "PREROUTING"}, {"inet", "theirs", "early"}} {
		r.Line(at, 0) // reads all
		for _, l := range slices.SortedFunc(maps.Values(r.lines[at]), func(a, b Line) int { return a.Position - b.Position }) {
			got = append(got, fmt.Sprintf("%s %d untracks=%v marks=%v", at.Table, l.Position, l.Untracks, l.Marks))
		}
	}
	want := []string{
		"raw 1 untracks=true marks=false", "raw 2 untracks=true marks=false", "raw 3 untracks=false marks=false",
		"mangle 1 untracks=false marks=true", "mangle 2 untracks=false marks=true", "mangle 3 untracks=false marks=true",
		"mangle 4 untracks=false marks=true", "mangle 5 untracks=false marks=false",
		"theirs 1 untracks=true marks=false", "theirs 2 untracks=false marks=true", "theirs 3 untracks=false marks=true",
		"theirs 4 untracks=false marks=false", "theirs 5 untracks=false marks=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func tables(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	return string(out)
}

// A table that its tracer could not remove ceases to match, and is then removed. One whose tracer
// works stays, and so does a table of others.
func TestStaleTablesAreRemoved(t *testing.T) {
	nettest.Enter(t)
	for i, timeout := range []string{"1h", "100ms"} {
		load(t, fmt.Sprintf("table ip vmapd-trace-%d { set destinations { type ipv4_addr; flags timeout; elements = { 10.0.0.1 timeout %s } }\n}\n", i, timeout))
	}
	load(t, "table ip vmapd-tracer { set destinations { type ipv4_addr; }\n}\n")
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := RemoveStaleTraces(); err != nil {
			t.Fatal(err)
		}
		got := tables(t)
		if !strings.Contains(got, "vmapd-trace-0\n") || !strings.Contains(got, "vmapd-tracer\n") {
			t.Fatalf("too much is removed:\n%s", got)
		}
		if !strings.Contains(got, "vmapd-trace-1\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stale table stays:\n%s", got)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestATracerRemovesItsTable(t *testing.T) {
	nettest.Enter(t)
	for _, dest := range []string{"172.30.0.1:80", "[fd00::1]:80"} {
		tr, err := StartTrace(Filter{Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP, Lifetime: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if got := tables(t); !strings.Contains(got, tr.Table()) {
			t.Errorf("there is no table %s:\n%s", tr.Table(), got)
		}
		if events, err := tr.Read(t.Context(), time.Now()); err != nil || len(events) > 0 {
			t.Errorf("want no events, got %v, %v", events, err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := tables(t); got != "" {
		t.Errorf("something is left:\n%s", got)
	}
	if _, err := RemoveStaleTraces(); err != nil {
		t.Error(err)
	}
}

func TestDecodeRefusesShortMessages(t *testing.T) {
	for _, b := range [][]byte{nil, {1, 2, 3}} {
		if _, err := decode(b); !errors.Is(err, errShort) {
			t.Errorf("%v: want %v, got %v", b, errShort, err)
		}
	}
}

// Whatever the kernel's message, decoding does not panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 4, 0, 0, 0, 0, 3})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = decode(b) })
}
