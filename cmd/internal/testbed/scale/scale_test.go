package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
	var log bytes.Buffer
	o, err := parseOptions([]string{
		"-vmapd", daemonBinary(t), "-shapes", "60x1", "-churn", "1s", "-probes", "20", "-settle", "0s",
	}, &log)
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(t.Context(), o, o.shapes[0], &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	var table bytes.Buffer
	writeTable(&table, []record{r})
	t.Logf("%s", &table)
	if r.wrong != nil || r.Ready == 0 || r.Restart == 0 || r.Peak < r.Settled || r.Settled == 0 || r.One == 0 || r.ChurnP99 < r.Churn {
		t.Errorf("got %+v: %v", r, r.wrong)
	}
}

// What can find nothing to be wrong proves nothing.
func TestRestartNoticesOneEndpoint(t *testing.T) {
	nettest.Need(t)
	o, err := parseOptions([]string{"-vmapd", daemonBinary(t), "-shapes", "20x3"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(o.shapes[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	p, err := w.start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p.kill()
	for _, noticed := range []bool{false, true} {
		r := record{}
		if err := r.again(t.Context(), o, w); err != nil || (r.wrong != nil) != noticed {
			t.Fatalf("after a change (%t): %v, %v", noticed, r.wrong, err)
		}
		e, _ := w.cluster.Replace(time.Now())
		w.write(e)
	}
}
