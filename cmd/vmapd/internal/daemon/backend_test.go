package daemon

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/sync/events"
)

// A finding is an event once it has lasted, and again after a while.
func TestAFindingThatLastsIsAnEvent(t *testing.T) {
	reasons := map[string]string{
		"other-proxies": "OtherProxy", "conntrack": "ConntrackTableNearlyFull", "node": "NodeNotFound",
	}
	less := map[report.Level]report.Level{report.Fail: report.Warn, report.Warn: report.OK}
	for _, n := range noticedChecks() {
		check := n.check
		log := &testlog.Log{}
		written := slog.New(slog.NewTextHandler(log, nil))
		d := &Daemon{Options: Options{Log: written}, events: events.New(events.Options{Log: written})}
		bad := []report.Line{{Name: check, Level: n.level, Text: "it is back"}}
		look := func(times int, lines []report.Line, want int) {
			t.Helper()
			for range times {
				d.noticeOne(n, lines)
			}
			if got := strings.Count(log.String(), "doctor has a finding"); got != want {
				t.Errorf("%s: %d lines, want %d:\n%s", check, got, want, log)
			}
		}
		look(lasting-1, bad, 0)
		look(1, nil, 0)
		look(lasting-1, bad, 0)
		look(1, []report.Line{{Name: check, Level: less[n.level]}}, 0)
		look(lasting, bad, 1)
		look(repeatEvent-1, bad, 1)
		look(1, bad, 2)
		look(1, nil, 2)
		look(lasting-1, bad, 2)
		if n.reason != reasons[check] {
			t.Errorf("%s: the event has the reason %s, want %s", check, n.reason, reasons[check])
		}
	}
}
