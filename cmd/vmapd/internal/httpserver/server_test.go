package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	r := start(t, Options{Address: "[::1]:0", Handler: says("hello")})
	url := "http://" + r.address()
	if status, body, err := get(t, http.DefaultClient, url); err != nil || status != http.StatusOK || body != "hello" {
		t.Errorf("got %d %q, %v", status, body, err)
	}
	r.cancel()
	if err := <-r.result; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, _, err := get(t, http.DefaultClient, url); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: want connection refused, got %v", err)
	}
}

// takenPort is an address on loopback that somebody else listens on.
func takenPort(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestATakenPortIsServedOnceItIsFree(t *testing.T) {
	t.Parallel()
	taken := takenPort(t)
	address := taken.Addr().String()
	failed := make(chan error, 10)
	log, said := newLog()
	start(t, Options{
		Name: "metrics", Address: address, Handler: says("hello"), Log: log, Failed: func(err error) { failed <- err },
	})
	if err := <-failed; !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "metrics server: listen tcp "+address) {
		t.Errorf("Failed was told: %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	testaid.WaitUntil(t, "the port is served", func() bool {
		_, body, err := get(t, http.DefaultClient, "http://"+address)
		return err == nil && body == "hello"
	})
	testaid.WaitUntil(t, "that is said", func() bool { return strings.Count(said.String(), "listening again") == 1 })
}

// stuckListener waits for connections that never come.
type stuckListener struct{ closed chan struct{} }

func (l stuckListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l stuckListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (stuckListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 10249} }

func TestTriesEveryFiveSecondsAndComplainsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, said := newLog()
		var told []string
		s := New(Options{
			Name: "test", Address: "127.0.0.1:10249", Handler: says(""), Log: log,
			Failed: func(err error) { told = append(told, err.Error()) },
		})
		begin := time.Now()
		var tries []time.Duration
		var open stuckListener
		answers := []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("one"), nil}
		s.opts.Listen = func(context.Context, string, string) (net.Listener, error) {
			err := answers[len(tries)]
			tries = append(tries, time.Since(begin))
			open = stuckListener{make(chan struct{})}
			return open, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		// A listener that ends on its own is opened again, too.
		_ = open.Close()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		const sec = time.Second
		if diff := cmp.Diff([]time.Duration{0, 5 * sec, 10 * sec, 15 * sec, 65 * sec, 70 * sec}, tries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		want := []string{
			"test server: one", "test server: two",
			"test server: stopped serving on 127.0.0.1:10249: use of closed network connection", "test server: one",
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("Failed was told (-want +got):\n%s", diff)
		}
		if got := strings.Count(said.String(), "cannot listen; retrying"); got != len(want) {
			t.Errorf("want %d complaints, got %d:\n%s", len(want), got, said)
		}
	})
}

func TestHardFail(t *testing.T) {
	t.Parallel()
	taken := takenPort(t)
	told := make(chan error, 1)
	bad := start(t, Options{
		Address: taken.Addr().String(), Handler: says(""), HardFail: true, Failed: func(err error) { told <- err },
	})
	if err := <-bad.result; !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("want that the address is in use, got %v", err)
	}
	if err := <-told; !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Failed was told: %v", err)
	}

	r := start(t, Options{Address: "127.0.0.1:0", Handler: says(""), HardFail: true})
	l := <-r.listening
	_ = l.Close()
	if err := <-r.result; err == nil || !strings.Contains(err.Error(), "stopped serving on 127.0.0.1:0") {
		t.Errorf("want that the port ended, got %v", err)
	}
	if _, _, err := get(t, http.DefaultClient, "http://"+l.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: want connection refused, got %v", err)
	}
}

func TestAPanicEndsOnlyItsConnection(t *testing.T) {
	t.Parallel()
	log, said := newLog()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic([]string{"out of", "order"})
		}
	})
	url := "http://" + start(t, Options{Address: "127.0.0.1:0", Handler: handler, Log: log}).address()
	if status, _, err := get(t, http.DefaultClient, url+"/panic"); err == nil {
		t.Errorf("want a closed connection, got status %d", status)
	}
	if status, _, err := get(t, http.DefaultClient, url); err != nil || status != http.StatusOK {
		t.Errorf("after the panic: got status %d, %v", status, err)
	}
	for _, want := range []string{"level=ERROR", "http: panic serving", "[out of order]", "server_test.go"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, said)
		}
	}
}

// Requests that take long are given a moment, then their context ends.
func TestARequestThatTakesLongDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	here, left := make(chan struct{}), make(chan struct{})
	server := start(t, Options{Address: "127.0.0.1:0", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(here)
		<-r.Context().Done()
		close(left)
	})})
	url := "http://" + server.address()
	asked := make(chan error)
	go func() {
		_, _, err := get(t, http.DefaultClient, url)
		asked <- err
	}()
	<-here
	server.cancel()
	if err := <-server.result; err != nil {
		t.Error(err)
	}
	<-left
	if err := <-asked; err == nil {
		t.Error("the client was answered")
	}
}
