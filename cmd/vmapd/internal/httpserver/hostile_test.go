package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The test hangs where a server waits for such clients.
func TestClientsThatDawdleAreCutOff(t *testing.T) {
	t.Parallel()
	address := start(t, Options{Address: "127.0.0.1:0", Handler: metricsPort().Handler()}).address()
	var wait sync.WaitGroup
	for name, sends := range map[string]string{
		"nothing at all":        "",
		"half a header":         "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ",
		"half a request line":   "GE",
		"a header without end":  "GET /healthz HTTP/1.1\r\nHost: a\r\n",
		"a preface of HTTP/2":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"something that is not": "\x16\x03\x01\x00\xff\x00",
	} {
		c := dial(t, address)
		if _, err := io.WriteString(c, sends); err != nil {
			t.Fatal(err)
		}
		wait.Go(func() {
			answer, _ := io.ReadAll(c) // until the server hangs up, however it does
			if strings.Contains(string(answer), "200 OK") {
				t.Errorf("%s: that was answered: %s", name, answer)
			}
		})
	}
	wait.Wait()
}

// pipeListener accepts what dial makes, within a bubble of synctest.
type pipeListener struct {
	stuckListener
	conns chan net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

func TestHowLongAClientMayTake(t *testing.T) {
	const put = "PUT /debug/flags/v HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
	for _, tt := range []struct {
		name, sends string
		reads       bool
		want        time.Duration // until the server hangs up
	}{
		{"to send the header", put, true, 5 * time.Second},
		{"to send the body", put + "\r\n", true, 30 * time.Second},
		{"to ask again", put + "\r\n4", true, 90 * time.Second},
		{"to take the answer", "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n", false, 30 * time.Second},
		{"to take a profile", "GET /profile HTTP/1.1\r\nHost: a\r\n\r\n", false, 10 * time.Minute},
		{"to wait for a profile", "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", false, 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				flood := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					defer close(ended)
					for {
						if _, err := w.Write(make([]byte, 1<<10)); err != nil {
							return
						}
					}
				})
				wait := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					defer close(ended)
					<-r.Context().Done()
				})
				mux := http.NewServeMux()
				mux.Handle("/debug/flags/v", verbosity(func(int) {}))
				mux.Handle("/flood", flood)
				mux.Handle("/profile", profile(make(chan struct{}, 1), flood))
				mux.Handle("/wait", profile(make(chan struct{}, 1), wait))
				l := pipeListener{stuckListener{make(chan struct{})}, make(chan net.Conn)}
				s := New(Options{Address: "here:1", Handler: mux, Log: discard()})
				s.listen = func(context.Context, string, string) (net.Listener, error) { return l, nil }
				stop := testaid.Run(t, func(ctx context.Context) { _ = s.Run(ctx) })
				c, begin := l.dial(), time.Now()
				if _, err := io.WriteString(c, tt.sends); err != nil {
					t.Fatal(err)
				}
				if tt.reads {
					_, _ = io.Copy(io.Discard, c) // until the server hangs up, however it does
				} else {
					<-ended
				}
				if got := time.Since(begin); got != tt.want {
					t.Errorf("want %v, got %v", tt.want, got)
				}
				_ = c.Close()
				stop()
			})
		})
	}
}

func TestHugeHeaders(t *testing.T) {
	t.Parallel()
	url := "http://" + start(t, Options{Address: "127.0.0.1:0", Handler: says("hello")}).address()
	if status, _, err := get(t, http.DefaultClient, url, "X-Large", strings.Repeat("x", 32<<10)); err != nil || status != http.StatusOK {
		t.Errorf("a large one: got status %d, %v", status, err)
	}
	// The server hangs up while the client still sends, so the answer may get lost.
	status, _, err := get(t, http.DefaultClient, url, "X-Huge", strings.Repeat("x", 128<<10))
	if err == nil && status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a huge one: got status %d", status)
	}
	if _, body, err := get(t, http.DefaultClient, url); err != nil || body != "hello" {
		t.Errorf("afterwards: got %q, %v", body, err)
	}
}
