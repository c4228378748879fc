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
	if err := <-failed; !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(),
		"metrics server: listen tcp "+address) {
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
		if err := s.Err(); err != nil {
			t.Errorf("it listened in the end: %v", err)
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
}
