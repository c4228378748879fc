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
)

func TestServesUntilTheEnd(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Addresses: []string{"127.0.0.1:0", "[::1]:0"}, Handler: says("hello")}, Options{Name: "test", Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	serving(t, s, 2)
	addrs := s.Addrs()
	for _, a := range addrs {
		if status, body, err := get(t, http.DefaultClient, "http://"+a.String()); err != nil || status != http.StatusOK || body != "hello" {
			t.Errorf("%s: got %d %q, %v", a, status, body, err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, a := range addrs {
		if _, _, err := get(t, http.DefaultClient, "http://"+a.String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s after the end: want connection refused, got %v", a, err)
		}
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
	start(t, Config{Addresses: []string{address}, Handler: says("hello")},
		Options{Name: "metrics", Log: log, Failed: func(err error) { failed <- err }})
	if err := <-failed; !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "metrics server: listen tcp "+address) {
		t.Errorf("Failed was told: %v", err)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port is served", func() bool {
		_, body, err := get(t, http.DefaultClient, "http://"+address)
		return err == nil && body == "hello"
	})
	eventually(t, "that is said", func() bool { return said.count("listening again") == 1 })
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
		s, err := New(Config{Addresses: []string{"127.0.0.1:10249"}, Handler: says("")},
			Options{Name: "test", Log: log, Failed: func(err error) { told = append(told, err.Error()) }})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var tries []time.Duration
		answers := []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("one"), nil}
		s.listen = func(context.Context, string, string) (net.Listener, error) {
			err := answers[len(tries)]
			tries = append(tries, time.Since(begin))
			return stuckListener{make(chan struct{})}, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Minute)
		// A listener that ends on its own is opened again, too.
		s.mu.Lock()
		err = s.open[0].listener.Close()
		s.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
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
		if got := said.count("cannot listen; retrying"); got != len(want) {
			t.Errorf("want %d complaints, got %d:\n%s", len(want), got, said)
		}
	})
}

func TestHardFail(t *testing.T) {
	t.Parallel()
	taken := takenPort(t)
	bad := Config{Addresses: []string{taken.Addr().String()}, Handler: says("")}
	told := make(chan error, 1)
	_, result := start(t, bad, Options{HardFail: true, Failed: func(err error) { told <- err }})
	if err := <-result; !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("want that the address is in use, got %v", err)
	}
	if err := <-told; !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Failed was told: %v", err)
	}

	s, result := start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: says("")}, Options{HardFail: true})
	address := serving(t, s, 1)
	if err := s.open[0].listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "stopped serving on 127.0.0.1:0") {
		t.Errorf("want that the port ended, got %v", err)
	}
	if _, _, err := get(t, http.DefaultClient, "http://"+address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: want connection refused, got %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		c    Config
		want string
	}{
		{"nothing", Config{}, ""},
		{"plain", Config{Addresses: []string{"0.0.0.0:10249", "[::1]:0", ":80"}}, ""},
		{"no port", Config{Addresses: []string{"127.0.0.1"}}, `address "127.0.0.1": missing port in address; want HOST:PORT`},
		{"a port out of range", Config{Addresses: []string{"127.0.0.1:65536"}}, `address "127.0.0.1:65536": the port must be a number from 0 to 65535`},
		{"bare IPv6", Config{Addresses: []string{"::1:80"}}, `address "::1:80": too many colons in address; want HOST:PORT`},
		{"twice", Config{Addresses: []string{"[::1]:1", "[::1]:1"}}, `address "[::1]:1" is given twice`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Handler = says("")
			err := tt.c.Validate()
			if got := message(err); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("want %q, got %q", tt.want, got)
			}
			_, newErr := New(tt.c, Options{Name: "metrics", Log: discard()})
			if want := message(err); want != "" && message(newErr) != "metrics server: "+want || want == "" && newErr != nil {
				t.Errorf("New: want %q, got %v", want, newErr)
			}
		})
	}
	if err := (Config{Addresses: []string{":1"}}).Validate(); message(err) != "there is nothing to serve" {
		t.Errorf("without a handler: got %v", err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAPanicEndsOnlyItsConnection(t *testing.T) {
	t.Parallel()
	log, said := newLog()
	s, _ := start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic([]string{"out of", "order"})
		}
	})}, Options{Log: log})
	url := "http://" + serving(t, s, 1)
	if status, _, err := get(t, http.DefaultClient, url+"/panic"); err == nil {
		t.Errorf("want a closed connection, got status %d", status)
	}
	if status, _, err := get(t, http.DefaultClient, url); err != nil || status != http.StatusOK {
		t.Errorf("after the panic: got status %d, %v", status, err)
	}
	for _, want := range []string{`msg="a handler panicked"`, "path=/panic", `reason="[out of order]"`, "server_test.go"} {
		if said.count(want) != 1 {
			t.Errorf("the log does not say %s once:\n%s", want, said)
		}
	}
}

// Requests that take long are given a moment, then their context ends.
func TestARequestThatTakesLongDoesNotKeepTheServer(t *testing.T) {
	t.Parallel()
	here, left := make(chan struct{}), make(chan struct{})
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(here)
		<-r.Context().Done()
		close(left)
	})}, Options{Name: "test", Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	url := "http://" + serving(t, s, 1)
	asked := make(chan error)
	go func() {
		_, _, err := get(t, http.DefaultClient, url)
		asked <- err
	}()
	<-here
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-left
	if err := <-asked; err == nil {
		t.Error("the client was answered")
	}
}
