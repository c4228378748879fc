package cli

import (
	"bytes"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
)

// asking are the commands that ask the daemon for its state.
var asking = [][]string{{"status"}, {"status", "shop/web"}, {"services", "-A"}}

// says checks what commands say about a daemon that does not answer them; diagnosis has one that hangs.
func says(t *testing.T, socket, want string) {
	t.Helper()
	for _, args := range asking {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), append(args, "--socket", socket), nil, &stdout, &stderr)
		if code != 1 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "vmapd: "+want) ||
			strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q; want 1 and %q", args, code, &stdout, &stderr, want)
		}
	}
}

func TestNoDaemonIsNamed(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	says(t, socket, "no daemon answers: there is no socket "+socket+". Is vmapd running? Is --socket correct?")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	says(t, socket, "no daemon answers: the process that made the socket "+socket+" has ended")
}

func TestADaemonOfAnotherVersionIsNamed(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "vmapd.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	old := http.NewServeMux()
	old.HandleFunc("/v1/connections", func(http.ResponseWriter, *http.Request) {})
	old.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"doctor": ["it was a list in those days"]}`)) // an error means that the client left
	})
	server := &http.Server{Handler: old, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, args := range asking {
		var stdout, stderr bytes.Buffer
		code := cli.Run(t.Context(), append(args, "--socket", socket), nil, &stdout, &stderr)
		if code != 1 || !strings.Contains(stderr.String(),
			"; if the daemon is of another version than this program, use the program of the daemon's image") {
			t.Errorf("%v: exit code %d, %s", args, code, &stderr)
		}
	}
}
