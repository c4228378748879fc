package main

import (
	"bytes"
	"strings"
	"testing"
)

// A text that has changed since would leave its fault out of the table.
func TestEachFaultCanBePlanted(t *testing.T) {
	const module = "../../../.."
	for _, f := range faults {
		planted, err := f.planted(module)
		if err != nil {
			t.Error(err)
		} else if f.new != "" && !bytes.Contains(planted, []byte(f.new)) {
			t.Errorf("%s: the fault is not planted: %s", f.file, f.what)
		}
		reached := false
		for _, s := range searches {
			reached = reached || s.reaches(f.file)
		}
		if !reached {
			t.Errorf("%s: no search runs this code", f.file)
		}
	}
}

func TestATextThatIsNotThereOnceIsAnError(t *testing.T) {
	for _, old := range []string{"nobody wrote this", "func"} {
		f := fault{file: "main.go", old: old}
		if _, err := f.planted("."); err == nil || !strings.Contains(err.Error(), "not once") {
			t.Errorf("%q: got %v", old, err)
		}
	}
}

func TestWhere(t *testing.T) {
	for out, want := range map[string]string{
		"    simulate_test.go:50: seed 42, step 17: the table is not sound\n": "seed 42, step 17",
		"panic: index out of range\n":                                         "panic",
		"--- FAIL: TestSmallWorlds (1.00s)\n":                                 "",
	} {
		if got := where(out); got != want {
			t.Errorf("%q: got %q, want %q", out, got, want)
		}
	}
}
