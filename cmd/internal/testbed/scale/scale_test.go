package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// daemonBinary builds vmapd.
func daemonBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vmapd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/vmapd/vmapd/cmd/vmapd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build vmapd: %v\n%s", err, out)
	}
	return path
}

func TestMeasure(t *testing.T) {
	nettest.Need(t)
	path := daemonBinary(t)
	var log bytes.Buffer
	o, err := parseOptions([]string{
		"-vmapd", path, "-shapes", "realistic:60", "-churn", "2s", "-rate", "200", "-probes", "20", "-settle", "0s", "-connections", "1",
	}, &log)
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(t.Context(), o, o.shapes[0], &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var table bytes.Buffer
	writeTable(&table, []*result{r})
	t.Logf("%s", &table)
	if !strings.Contains(log.String(), "through a Service (") || !strings.Contains(log.String(), ", 0 lost") {
		t.Errorf("connections are missing:\n%s", &log)
	}
	if err := r.wrong(); err != nil {
		t.Error(err)
	}
	switch {
	case r.cold.traffic.operations == 0 || r.cold.traffic.bytes == 0 || r.cold.longestBatch == 0:
		t.Errorf("the start wrote nothing: %+v", r.cold)
	case r.cold.listed == 0 || r.cold.ready < r.cold.listed || r.restart.ready == 0:
		t.Errorf("times of the starts: %+v and %+v", r.cold, r.restart)
	case r.peak < r.settled || r.settled == 0: // the transactions of so small a table may all be between two looks
		t.Errorf("memory: %+v", r)
	case r.idle.changes != 20 || r.churn.changes == 0 || r.churned.writes < 100 || r.churned.traffic.operations == 0:
		t.Errorf("changes: %+v, %+v, %+v", r.idle, r.churn, r.churned)
	}
}

// What can find nothing to be wrong proves nothing.
func TestCompareNoticesOneEndpoint(t *testing.T) {
	nettest.Need(t)
	o, err := parseOptions([]string{"-vmapd", daemonBinary(t), "-shapes", "20x3"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(t.Context(), o.shapes[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	d, err := w.start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.waitReady(t.Context()), d.kill()); err != nil {
		t.Fatal(err)
	}
	if got, err := w.compare(t.Context()); err != nil || got != (traffic{}) {
		t.Fatalf("got %+v and %v, want no difference", got, err)
	}
	w.cluster.Replace(time.Now())
	if got, err := w.compare(t.Context()); err != nil || got.operations == 0 {
		t.Errorf("an endpoint that the daemon never heard of makes no difference: %+v, %v", got, err)
	}
}

func TestLatency(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(i+1))
	}
	if got, want := newLatency(all), (latency{p50: 100, p99: 198, worst: 200, changes: 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := newLatency(all[:1]), (latency{p50: 1, p99: 1, worst: 1, changes: 1}); got != want {
		t.Errorf("of one: got %+v, want %+v", got, want)
	}
	if got := newLatency(nil); got != (latency{}) {
		t.Errorf("of none: got %+v", got)
	}
}

func TestOptions(t *testing.T) {
	for _, args := range [][]string{
		{"-shapes", "5000"},
		{"-shapes", ""},
		{"-rate", "0"},
		{"-probes", "-1"},
		{"5000x50"},
	} {
		if o, err := parseOptions(args, t.Output()); err == nil {
			t.Errorf("%q: got %+v, want an error", args, o)
		}
	}
	o, err := parseOptions([]string{"-churn", "30m", "-shapes", "3x4,realistic:5"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.Shape{{Services: 3, Endpoints: 4}, {Services: 5, Mixed: true}}
	if o.churn != 30*time.Minute || len(o.shapes) != 2 || o.shapes[0] != want[0] || o.shapes[1] != want[1] {
		t.Errorf("got %+v", o)
	}
}
