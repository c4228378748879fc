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

// told is what Follow said.
type told struct {
	config *config.Config
	err    error
}

// follow starts to follow, and returns what to wait for.
func follow(t *testing.T, args ...string) <-chan told {
	t.Helper()
	c, err := config.Load(flags(t, args...))
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan told, 10)
	stop := testaid.Run(t, func(ctx context.Context) {
		c.Follow(ctx, func(c *config.Config, err error) { said <- told{c, err} })
	})
	t.Cleanup(func() {
		stop()
		if len(said) > 0 {
			t.Errorf("something else was said: %+v", <-said)
		}
	})
	return said
}

func next(t *testing.T, said <-chan told) told {
	t.Helper()
	select {
	case s := <-said:
		return s
	case <-time.After(time.Minute):
		t.Fatal("nothing is said")
		return told{}
	}
}

// wantNode waits for a configuration with this name of the Node.
func wantNode(t *testing.T, said <-chan told, name string) {
	t.Helper()
	if s := next(t, said); s.err != nil || s.config.Model().NodeName != name {
		t.Fatalf("got %+v, want %s", s, name)
	}
}

func TestFollowFiles(t *testing.T) {
	dir := t.TempDir()
	path, own := filepath.Join(dir, "config.conf"), filepath.Join(dir, "own.yaml")
	proxy := func(text string) string { return header + "mode: nftables\n" + text }
	write(t, path, proxy("hostnameOverride: one\n"))
	write(t, own, ownHeader)
	said := follow(t, "--config="+path, "--vmapd-config="+own)

	write(t, path, proxy("hostnameOverride: two\n")) // in place
	wantNode(t, said, "two")

	replace := func(path, text string) {
		t.Helper()
		write(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	replace(path, proxy("hostnameOverride: three\n"))
	wantNode(t, said, "three")

	// What is wrong is said with the file and the field.
	replace(path, proxy("oomScoreAdj: 5000\n"))
	if s := next(t, said); s.err == nil || !strings.HasPrefix(s.err.Error(), path+": oomScoreAdj: ") {
		t.Fatalf("got %+v, want an error", s)
	}
	replace(path, proxy("hostnameOverride: four\n"))
	wantNode(t, said, "four")

	// The other file, and a file that vanishes and comes back.
	replace(own, ownHeader+"dropInvalid: false\nbackend: nftables\n")
	if s := next(t, said); s.err != nil || s.config.Backend != config.NFTables {
		t.Fatalf("got %+v", s)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if s := next(t, said); s.err == nil || !strings.Contains(s.err.Error(), "own.yaml: no such file") {
		t.Fatalf("got %+v, want an error", s)
	}
	replace(own, ownHeader)
	if s := next(t, said); s.err != nil || s.config.Own().Backend != config.Auto {
		t.Fatalf("got %+v", s)
	}
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
	for i, name := range []string{"two", "three"} {
		version("..2026_"+name, name)
		if i == 0 {
			if err := os.RemoveAll(filepath.Join(dir, "..2026_1")); err != nil {
				t.Fatal(err)
			}
		}
		wantNode(t, said, name)
	}
}

// A link to a file elsewhere, which changes there.
func TestFollowALink(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "config.conf")
	link := filepath.Join(t.TempDir(), "config.conf")
	write(t, elsewhere, header+"hostnameOverride: one\n")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	said := follow(t, "--config="+link)
	write(t, elsewhere, header+"hostnameOverride: two\n")
	wantNode(t, said, "two")
}
