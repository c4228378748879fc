package main

import (
	"bytes"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func TestMeasure(t *testing.T) {
	nettest.Need(t)
	var log bytes.Buffer
	o, err := parseOptions([]string{
		"-vmapd", labtest.Vmapd(t), "-shapes", "60x1", "-churn", "1s", "-probes", "20", "-settle", "0s",
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
