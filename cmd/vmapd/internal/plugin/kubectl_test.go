package plugin

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeKubectl puts a script in the place of kubectl.
func fakeKubectl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script),
		0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// Ctrl-C ends the context; the command in the pod sees the end of its input, and says its last words.
func TestTheEndOfTheContextIsTheEndOfTheInput(t *testing.T) {
	fakeKubectl(t, `echo "began: $*"; cat; echo "ended in order"`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var stdout bytes.Buffer
	code, err := Kubectl{Flags: []string{"--context=prod"}}.Exec(ctx, []string{"exec", "-i", "pod"}, &stdout, &stdout)
	if want := "began: exec --context=prod -i pod\nended in order\n"; code != 0 || err != nil || stdout.String() != want {
		t.Errorf("%d, %v, %q; want %q", code, err, &stdout, want)
	}
}

func TestDialIsAConnectionWithTheCommand(t *testing.T) {
	fakeKubectl(t, `exec cat`)
	c := Kubectl{}.Dial([]string{"exec", "-i"})
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 10)
	if n, err := c.Read(answer); err != nil || string(answer[:n]) != "hello" {
		t.Errorf("%q, %v", answer[:n], err)
	}
}

func TestOutputHasTheErrorThatIsPrinted(t *testing.T) {
	fakeKubectl(t, `echo "no such pod" >&2; exit 1`)
	if _, err := (Kubectl{}).Output(t.Context(), "get"); err == nil || err.Error() != "no such pod" {
		t.Errorf("error %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := (Kubectl{}).Output(t.Context(), "get"); err == nil || !strings.Contains(err.Error(),
		"the program kubectl is needed") {
		t.Errorf("error %v", err)
	}
}
