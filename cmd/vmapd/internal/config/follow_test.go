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
// more, and "changed" in the end.
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

func TestFollowFiles(t *testing.T) {
	dir := t.TempDir()
	path, own := filepath.Join(dir, "config.conf"), filepath.Join(dir, "own.yaml")
	const one = header + "mode: nftables\nhostnameOverride: one\n"
	write(t, path, one)
	write(t, own, ownHeader)
	said := follow(t, "--config="+path, "--vmapd-config="+own)
	write(t, path, header+"oomScoreAdj: 5000\n") // in place
	wantSaid(t, said, path+": oomScoreAdj: ")
	write(t, path, one)
	wantSaid(t, said, "")
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	wantSaid(t, said, "--vmapd-config: open "+own+": no such file")
	write(t, own, ownHeader+"dropInvalid: false\nbackend: nftables\n")
	wantSaid(t, said, "changed")
}
