package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// A panic during an examination is a finding: here, of an examiner that lacks everything. The process goes on.
func TestAPanicOfDoctorIsAFinding(t *testing.T) {
	log := &bytes.Buffer{}
	e := &examiner{base: &base{log: slog.New(slog.NewTextHandler(log, nil))}}
	lines := e.report(examinedEvery).Lines
	if len(lines) != 1 || lines[0].Name != "doctor" || lines[0].Level != report.Fail ||
		!strings.HasPrefix(lines[0].Text, "doctor failed: runtime error: ") {
		t.Errorf("want the finding, got %v", lines)
	}
	if counts := findings(lines); counts[metrics.Finding{Check: "doctor", Level: string(report.Fail)}] != 1 {
		t.Errorf("want it in the metric, got %v", counts)
	}
	if text := log.String(); !strings.Contains(text, "doctor panicked") || !strings.Contains(text, "examiner.go") {
		t.Errorf("want the stack in the log, got %q", text)
	}
}
