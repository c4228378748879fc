package files

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func TestNextReturnsAfterAChange(t *testing.T) {
	dir := t.TempDir()
	f := New(slog.New(slog.DiscardHandler))
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, change := range map[string]func() error{
		"written":  func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600) },
		"a link":   func() error { return os.Symlink("nowhere", filepath.Join(dir, "link")) },
		"a folder": func() error { return os.Mkdir(filepath.Join(dir, "folder"), 0o700) },
		"replaced": func() error {
			other := filepath.Join(t.TempDir(), "b")
			if err := os.WriteFile(other, []byte("b"), 0o600); err != nil {
				return err
			}
			return os.Rename(other, filepath.Join(dir, "b"))
		},
	} {
		f.Add(dir)
		if err := change(); err != nil {
			t.Fatal(name, err)
		}
		if !f.Next(ctx, 0) {
			t.Fatal(name, "not noticed")
		}
	}
}

// A folder that is not added again is watched no longer.
func TestNextForgetsFolders(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	f := New(slog.New(slog.DiscardHandler))
	defer f.Close()
	f.Add(one)
	f.Add(two)
	if !f.Next(t.Context(), time.Millisecond) {
		t.Fatal("the period does not end")
	}
	f.Add(two)
	if !f.Next(t.Context(), time.Millisecond) {
		t.Fatal("the period does not end")
	}
	if got := f.watcher.WatchList(); len(got) != 1 || got[0] != two {
		t.Errorf("want only %s watched, got %v", two, got)
	}
}

// A new folder in the place of another is watched like that.
func TestAddWatchesAReplacedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	f := New(slog.New(slog.DiscardHandler))
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		f.Add(filepath.Dir(dir))
		f.Add(dir) // does not exist the first time
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if !f.Next(ctx, 0) {
			t.Fatal("a new folder is not noticed")
		}
		f.Add(filepath.Dir(dir))
		f.Add(dir)
		if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !f.Next(ctx, 0) {
			t.Fatal("a file in the new folder is not noticed")
		}
	}
}

// A folder that can't be watched is polled. The log has one line about it.
func TestFollowerPolls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	f := New(slog.New(slog.NewTextHandler(&text, nil)))
	defer f.Close()
	for range 2 {
		f.Add(filepath.Join(file, "no folder"))
		if !f.Next(t.Context(), 0) {
			t.Fatal("not polled")
		}
	}
	if got := strings.Count(text.String(), "cannot watch folder; polling"); got != 1 {
		t.Errorf("want one line, got %d: %s", got, text.String())
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	f := New(slog.New(slog.DiscardHandler))
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f.Next(ctx, time.Hour) {
		t.Error("want false")
	}
}
