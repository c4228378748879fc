// Package testaid has what tests of many packages need: files, expected texts, logs, and work that ends with the test.
package testaid

import (
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag to rewrite texts that are expected.
var Update = flag.Bool("update", false, "rewrite expected texts in testdata") //nolint:gochecknoglobals // a flag

// Equal compares two values.
func Equal[T any](t testing.TB, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Golden compares a text with that of a file or, with -update, writes it there.
func Golden(t testing.TB, path, got string) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // it is in the repository
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(Read(t, path), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
	}
}

// Tables compares the tables of a page, each between <!-- table: NAME --> and <!-- end -->; -update writes them.
func Tables(t testing.TB, path string, tables map[string]string) {
	t.Helper()
	page := Read(t, path)
	for name, table := range tables {
		begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("%s has no place for the table %s", path, name)
		}
		page = before + begin + table + end + after
	}
	Golden(t, path, page)
}

// Read returns the text of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Write writes a file.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// WaitUntil waits for something, for a minute at most.
func WaitUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within a minute: ", what)
		}
	}
}

// FreePorts returns TCP ports that are free on all addresses, none of those that the kernel gives to clients.
func FreePorts(t testing.TB, n int) (list []uint16) {
	t.Helper()
	for range 1000 {
		port := uint16(20000 + mathrand.IntN(10000)) //nolint:gosec // chance need not be good
		if slices.Contains(list, port) {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		if list = append(list, port); len(list) == n {
			return list
		}
	}
	t.Fatalf("of %d ports, only %d are free", n, len(list))
	return nil
}

// Run runs something until the test ends, or stop is called, which waits for its end.
func Run(t testing.TB, run func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var ended sync.WaitGroup
	ended.Go(func() { run(ctx) })
	stop = func() { cancel(); ended.Wait() }
	t.Cleanup(stop)
	return stop
}
