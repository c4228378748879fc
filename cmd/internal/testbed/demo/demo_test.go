package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func TestDemo(t *testing.T) {
	nettest.Need(t)
	var out bytes.Buffer
	d := demo{out: &out, vmapd: labtest.Vmapd(t)}
	if err := d.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "OK: all ") {
		t.Errorf("the demo does not say that all is well:\n%s", &out)
	}
	const columns = 80 // of a terminal
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
