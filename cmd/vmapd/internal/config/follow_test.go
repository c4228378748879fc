package config_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// follow starts to follow the files of a command line. It returns what was wrong with them, "" where nothing is any
// more,
// and "changed" in the end.
func follow(t *testing.T, args ...string) <-chan string {
	t.Helper()
	c, err := config.Load(flags(t, args...))
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 10)
	t.Cleanup(testaid.Run(t, func(ctx context.Context) {
		changed := c.Follow(ctx, func(err error) {
			if err == nil {
				said <- ""
				return
			}
			said <- err.Error()
		})
		if changed {
			said <- "changed"
		}
	}))
	return said
}

// wantSaid waits for a text that begins so; "" is nothing else.
func wantSaid(t *testing.T, said <-chan string, want string) {
	t.Helper()
	select {
	case got := <-said:
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Fatalf("said is %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nothing is said, want %q", want)
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFollowFiles(t *testing.T) {
	dir := t.TempDir()
	path, own := filepath.Join(dir, "config.conf"), filepath.Join(dir, "own.yaml")
	const one = header + "mode: nftables\nhostnameOverride: one\n"
	write(t, path, one)
	write(t, own, ownHeader)
	said := follow(t, "--config="+path, "--vmapd-config="+own)
	write(t, path, header+"oomScoreAdj: 5000\n") // in place
	wantSaid(t, said, path+": oomScoreAdj: ")
	replace(t, path, one)
	wantSaid(t, said, "")
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	wantSaid(t, said, "--vmapd-config: open "+own+": no such file")
	replace(t, own, ownHeader+"dropInvalid: false\nbackend: nftables\n")
	wantSaid(t, said, "changed")
}

// kubelet swaps the link ..data, and removes what it led to.
func TestFollowAConfigMap(t *testing.T) {
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name+".new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	version := func(name, node string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "config.conf"), header+"hostnameOverride: "+node+"\n")
		link(name, "..data")
	}
	version("..2026_1", "one")
	link("..data/config.conf", "config.conf")
	said := follow(t, "--config="+filepath.Join(dir, "config.conf"))
	version("..2026_2", "two")
	if err := os.RemoveAll(filepath.Join(dir, "..2026_1")); err != nil {
		t.Fatal(err)
	}
	wantSaid(t, said, "changed")
}
