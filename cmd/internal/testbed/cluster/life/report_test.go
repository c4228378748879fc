package life

import (
	"strings"
	"testing"
	"time"
)

func TestTheTableHasARowForEachStep(t *testing.T) {
	var w strings.Builder
	WritePage(&w, []Result{
		{Step: "upgrade", Proxy: "kube-proxy:nftables", Counts: []Count{{New: 5, Lost: 1, Broken: 2}}},
		{
			Step: "upgrade", Proxy: VMAPD, Commit: "0123456789", Compared: true, Same: 1240 * time.Millisecond,
			Counts: []Count{{New: 10, Slow: 1}, {New: 20, Ended: 3}},
		},
	})
	lines := strings.Split(strings.TrimPrefix(w.String(), pageHead), "\n")
	const want = "| upgrade | 30 | 0 | 1 | 10 | 0 | 3 | yes, after 1.2s | 0123456789 | 5 | 1 | 0 | 5 | 2 | 0 |"
	if lines[2] != want {
		t.Errorf("want %s\ngot  %s", want, lines[2])
	}
	if want, got := len(Steps(VMAPD))+2, len(lines)-1; want != got {
		t.Errorf("want %d lines, got %d", want, got)
	}
	columns := strings.Count(lines[0], "|")
	for _, l := range lines[:len(lines)-1] {
		if n := strings.Count(l, "|"); n != columns {
			t.Errorf("want %d columns, got %d: %s", columns, n, l)
		}
	}
}

func TestOnlyVMAPDsLossesAreErrors(t *testing.T) {
	lost := []Count{{New: 10, Lost: 1}}
	if err := (&Result{Proxy: VMAPD, Counts: lost}).Err(); err == nil {
		t.Error("vmapd's loss is no error")
	}
	if err := (&Result{Proxy: "kube-proxy:nftables", Counts: lost}).Err(); err != nil {
		t.Error(err)
	}
	for _, r := range []Result{{Error: "no"}, {Different: "no"}} {
		if r.Err() == nil {
			t.Errorf("%+v is no error", r)
		}
	}
}
