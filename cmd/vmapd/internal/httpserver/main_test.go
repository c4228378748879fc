package httpserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := goroutinesLeft(); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines were left:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// goroutinesLeft returns the stacks of servers, connections and handlers that do not end.
func goroutinesLeft() string {
	const size = 1 << 20
	for deadline := time.Now().Add(10 * time.Second); ; {
		b := make([]byte, size)
		_, others, _ := strings.Cut(string(b[:runtime.Stack(b, true)]), "\n\n") // the first is this one
		if !strings.Contains(others, "net/http.(*Server).Serve") && !strings.Contains(others, "net/http.(*conn).serve") &&
			!strings.Contains(others, "cmd/vmapd/internal/httpserver.") {
			return ""
		}
		if time.Now().After(deadline) {
			return others
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func newLog() (*slog.Logger, *testlog.Log) {
	b := &testlog.Log{}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running is a server that runs.
type running struct {
	listening chan net.Listener // the first one
	result    chan error        // what Run returns
	cancel    func()
}

// start runs a server, and ends it with the test.
func start(t *testing.T, o Options) *running {
	t.Helper()
	if o.Log == nil {
		o.Log, _ = newLog()
	}
	if o.Name == "" {
		o.Name = "test"
	}
	s := New(o)
	r := &running{listening: make(chan net.Listener, 1), result: make(chan error, 1)}
	listen := s.opts.Listen
	s.opts.Listen = func(ctx context.Context, network, address string) (net.Listener, error) {
		l, err := listen(ctx, network, address)
		if err == nil && len(r.listening) == 0 {
			r.listening <- l
		}
		return l, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.result <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

// get asks over a connection of its own.
func get(t *testing.T, client *http.Client, url string, header ...string) (status int, body string, err error) {
	t.Helper()
	return do(t, client, http.MethodGet, url, "", header...)
}

func do(t *testing.T, client *http.Client, method, url, content string, header ...string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}
