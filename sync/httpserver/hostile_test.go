package httpserver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

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
				mux.HandleFunc("/debug/flags/v", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
				mux.Handle("/flood", flood)
				mux.Handle("/profile", Slow(flood))
				mux.Handle("/wait", Slow(wait))
				l := pipeListener{stuckListener{make(chan struct{})}, make(chan net.Conn)}
				s := &Server{Address: "here:1", Handler: mux, Log: slog.New(slog.DiscardHandler)}
				s.Listen = func(context.Context, string, string) (net.Listener, error) { return l, nil }
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
