package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

func TestDemo(t *testing.T) {
	nettest.Need(t)
	var out bytes.Buffer
	d := demo{out: &out, vmapd: filepath.Join(t.TempDir(), "vmapd")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.vmapd, "github.com/vmapd/vmapd/cmd/vmapd")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
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
