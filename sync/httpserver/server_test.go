package httpserver

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

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
		s := &Server{
			Name: "test", Address: "127.0.0.1:10249", Handler: says(""), Log: log,
			Failed: func(err error) { told = append(told, err.Error()) },
		}
		begin := time.Now()
		var tries []time.Duration
		var open stuckListener
		answers := []error{errors.New("one"), errors.New("one"), errors.New("two"), nil, errors.New("one"), nil}
		s.Listen = func(context.Context, string, string) (net.Listener, error) {
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
		testaid.Equal(t, "tries", []time.Duration{0, 5 * sec, 10 * sec, 15 * sec, 65 * sec, 70 * sec}, tries)
		want := []string{
			"test server: one", "test server: two",
			"test server: stopped serving on 127.0.0.1:10249: use of closed network connection", "test server: one",
		}
		testaid.Equal(t, "Failed was told", want, told)
		if got := said.Count("cannot listen; retrying"); got != len(want) || said.Count("listening again") != 2 {
			t.Errorf("want %d complaints, got %d:\n%s", len(want), got, said)
		}
	})
}

// The setting bindAddressHardFail.
func TestHardFail(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	log, _ := newLog()
	var told error
	s := &Server{
		Name: "metrics", Address: taken.Addr().String(), Handler: says(""), Log: log, HardFail: true, Listen: new(net.ListenConfig).Listen,
		Failed: func(err error) { told = err },
	}
	want := "metrics server: listen tcp " + taken.Addr().String()
	if err := s.Run(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), want) || !errors.Is(told, err) {
		t.Errorf("want %s, got %v; Failed was told: %v", want, err, told)
	}
}
