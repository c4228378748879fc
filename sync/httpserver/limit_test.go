package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// failing is a listener whose first errors are not about it.
type failing struct {
	net.Listener
	left int
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.ENOBUFS}
	}
	return f.Listener.Accept()
}

// limited serves HTTP on loopback until the test ends, after some errors. It answers with the path, "/wait" when the
// test lets it.
type limited struct {
	address string
	conns   *conns
	waiting chan struct{} // a request for /wait has come
	goOn    chan struct{}
}

func serve(t *testing.T, most int) *limited {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &limited{address: l.Addr().String(), waiting: make(chan struct{}), goOn: make(chan struct{})}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			s.waiting <- struct{}{}
			<-s.goOn
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})}
	s.conns = limit(h, most)
	var ended sync.WaitGroup
	ended.Go(func() { _ = h.Serve(patient{&failing{l, 3}}) })
	t.Cleanup(func() { _ = h.Close(); ended.Wait() })
	return s
}

// connect makes a connection from an address of loopback.
func (s *limited) connect(t *testing.T, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// request sends a request for a path.
func request(t *testing.T, c net.Conn, path string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
}

// answer reads one answer.
func answer(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// mustAnswer sends a request for a path, and reads the answer.
func mustAnswer(t *testing.T, c net.Conn, path string) {
	t.Helper()
	request(t, c, path)
	if got := answer(t, c); got != path {
		t.Errorf("want %s, got %q", path, got)
	}
}

// mustEnd waits until the server has closed a connection.
func mustEnd(t *testing.T, c net.Conn, what string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: not closed: %v", what, err)
	}
}

// accepted waits until the server has so many connections.
func (s *limited) accepted(t *testing.T, n int) {
	t.Helper()
	testaid.WaitUntil(t, "the server has the connections", func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		return len(s.conns.all) == n
	})
}

func TestTheMostSilentConnectionGoes(t *testing.T) {
	s := serve(t, 3)
	asked := s.connect(t, "127.0.0.1")
	s.accepted(t, 1)
	silent := s.connect(t, "127.0.0.1")
	s.accepted(t, 2)
	slow := s.connect(t, "127.0.0.1")
	s.accepted(t, 3)
	if _, err := io.WriteString(slow, "GET / HT"); err != nil {
		t.Fatal(err)
	}
	for range 3 { // on a connection that stays, an answer is a sign of life
		mustAnswer(t, asked, "/asked")
	}
	newest := s.connect(t, "127.0.0.2")
	mustEnd(t, silent, "the most silent one")
	_ = s.connect(t, "127.0.0.3")
	mustEnd(t, slow, "one that sent half a header")
	_ = s.connect(t, "127.0.0.4")
	mustEnd(t, asked, "one that asked long ago")
	mustAnswer(t, newest, "/newest")
	s.accepted(t, 3)
}

func TestAnAnswerInProgressStays(t *testing.T) {
	s := serve(t, 2)
	busy := s.connect(t, "127.0.0.1")
	request(t, busy, "/wait")
	<-s.waiting
	for range 3 {
		mustAnswer(t, s.connect(t, "127.0.0.2"), "/x")
	}
	s.goOn <- struct{}{}
	if got := answer(t, busy); got != "/wait" {
		t.Errorf("want /wait, got %q", got)
	}

	// Only if all are busy, one of them goes.
	var all []net.Conn
	for i := range 2 {
		all = append(all, s.connect(t, "127.0.0.1"))
		request(t, all[i], "/wait")
		<-s.waiting
	}
	mustAnswer(t, s.connect(t, "127.0.0.2"), "/x")
	mustEnd(t, all[0], "the one that was busy longest")
	s.goOn <- struct{}{}
	s.goOn <- struct{}{}
}

func TestConnectionsThatEndAreForgotten(t *testing.T) {
	s := serve(t, 10)
	for range 3 {
		_ = s.connect(t, "127.0.0.1").Close()
	}
	mustAnswer(t, s.connect(t, "127.0.0.1"), "/")
	s.accepted(t, 1)
}
