package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// Probes and scrapes do not wait for an examination: they get the last report. They wait for the first one alone.
func TestProbesDoNotWaitForAnExamination(t *testing.T) {
	d := &Daemon{Options: Options{Log: slog.New(slog.DiscardHandler)}}
	asked := func() <-chan doctor.Report {
		answer := make(chan doctor.Report, 1)
		go func() { answer <- d.report() }()
		return answer
	}
	d.examining.Lock() // as during an examination
	first := asked()
	select {
	case r := <-first:
		t.Fatalf("there is no report yet, and the answer is %v", r)
	case <-time.After(50 * time.Millisecond):
	}
	d.examining.Unlock()
	if r := <-first; len(r.Lines) == 0 {
		t.Errorf("want the report of the first examination, got %v", r)
	}
	d.examining.Lock()
	defer d.examining.Unlock()
	d.examined.Store(&doctor.Report{At: time.Now().Add(-time.Hour), Node: "old"})
	select {
	case r := <-asked():
		if r.Node != "old" {
			t.Errorf("want the last report during an examination, got %v", r)
		}
	case <-time.After(silence):
		t.Error("the answer waits for the examination of another request")
	}
}

// A panic during an examination is a finding: here, of an examiner that lacks everything. The process goes on.
func TestAPanicOfDoctorIsAFinding(t *testing.T) {
	log := &bytes.Buffer{}
	d := &Daemon{Options: Options{Log: slog.New(slog.NewTextHandler(log, nil))}}
	lines := d.report().Lines
	if len(lines) != 1 || lines[0].Name != "doctor" || lines[0].Level != report.Fail ||
		!strings.HasPrefix(lines[0].Text, "doctor failed: runtime error: ") {
		t.Errorf("want the finding, got %v", lines)
	}
	if counts := findings(lines); counts[metrics.Finding{Check: "doctor", Level: string(report.Fail)}] != 1 {
		t.Errorf("want it in the metric, got %v", counts)
	}
	if text := log.String(); !strings.Contains(text, "doctor panicked") || !strings.Contains(text, "examine.go") {
		t.Errorf("want the stack in the log, got %q", text)
	}
}
