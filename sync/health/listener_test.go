package health

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a listener on loopback that says 204, until the test ends: its address.
func server(t *testing.T, limits limits) string {
	t.Helper()
	socket := take(t, "127.0.0.1:0")
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	t.Cleanup(serve(socket, h, limits))
	return socket.Addr().String()
}

func TestSlowClientsAreClosed(t *testing.T) {
	const short = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		limits limits
		say    string
	}{
		"who does not finish":                 {limits{short, time.Hour}, "GET / HTTP/1.1\r\nHost: node\r\nX-Slow"},
		"who does not send what it announced": {limits{short, time.Hour}, "POST / HTTP/1.1\r\nHost: node\r\nContent-Length: 1000\r\n\r\nx"},
		"who does not ask again":              {limits{time.Hour, short}, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"},
		"who sends too much":                  {limits{time.Hour, time.Hour}, "GET / HTTP/1.1\r\nHost: node\r\nX: " + strings.Repeat("x", 3*maxHeader)},
	} {
		t.Run(name, func(t *testing.T) {
			at := server(t, tt.limits)
			c := connect(t, at)
			if _, err := io.WriteString(c, tt.say); err != nil && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
			mustClose(t, c)
		})
	}
}
