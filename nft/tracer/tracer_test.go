package tracer

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/nettest"
)

// A table that nobody owns is removed. One whose tracer works stays, and so does a table of others.
func TestStaleTablesAreRemoved(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, "table ip vmapd-trace-0 { set destinations { type ipv4_addr; }\n}\ntable ip vmapd-tracer {}\n", "nft", "-f", "-")
	tr, err := Start(Filter{Dest: netip.MustParseAddrPort("172.30.0.1:80"), Protocol: model.TCP, Lifetime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tr.Close() }()
	if err := RemoveStale(); err != nil {
		t.Error(err)
	}
	got := nettest.Run(t, "", "nft", "list", "tables")
	if strings.Contains(got, "vmapd-trace-0\n") || !strings.Contains(got, "vmapd-tracer\n") || !strings.Contains(got, tr.Table()) {
		t.Errorf("left:\n%s", got)
	}
}

func TestATracerRemovesItsTable(t *testing.T) {
	nettest.Enter(t)
	for _, dest := range []string{"172.30.0.1:80", "[fd00::1]:80"} {
		tr, err := Start(Filter{Dest: netip.MustParseAddrPort(dest), Protocol: model.TCP, Lifetime: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if got := nettest.Run(t, "", "nft", "list", "tables"); !strings.Contains(got, tr.Table()) {
			t.Errorf("there is no table %s:\n%s", tr.Table(), got)
		}
		if events, err := tr.Read(t.Context(), time.Now()); err != nil || len(events) > 0 {
			t.Errorf("want no events, got %v, %v", events, err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := nettest.Run(t, "", "nft", "list", "tables"); got != "" {
		t.Errorf("something is left:\n%s", got)
	}
	if err := RemoveStale(); err != nil {
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
