package userspace

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A server that answers only after its client's end gets that end while the connection
// stays open for the answer.
func TestTheClientsHalfCloseReachesTheServer(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	pod := r.pod(0, tcpServer(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(append([]byte("you said "), all...))
		}
	}))
	r.set(web("TCP", port), slice("TCP", pod))
	c := dialTCP(t, nodePort(port))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if string(got) != "you said hello" || err != nil {
		t.Errorf("want %q, got %q, %v", "you said hello", got, err)
	}
}

func TestOtherEndpointsAreTriedIfOneRefuses(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	pods := []string{
		r.pod(0, refusingTCP(t)), r.pod(1, refusingTCP(t)),
		r.pod(2, tcpServer(t, echo('c'))), r.pod(3, refusingTCP(t)),
	}
	r.set(web("TCP", port).Algorithm("maglev"), slice("TCP", pods...))
	for range 4 {
		if name := whoOnce(t, nodePort(port)); name != 'c' {
			t.Errorf("got %c", name)
		}
	}

	r.set(slice("TCP", pods[0], pods[1], pods[3]))
	r.opened()
	mustBeReset(t, nodePort(port))
	if _, dials := r.opened(); dials != 3 {
		t.Errorf("%d attempts to connect to 3 endpoints", dials)
	}
}

// An endpoint whose node is gone answers nothing at all.
func TestASilentEndpointCostsABoundedTime(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.try, r.limits.tries = 200*time.Millisecond, 3
	var pods []string
	for n := range 20 {
		pods = append(pods, r.pod(n, silent))
	}
	r.set(web("TCP", port), slice("TCP", pods...))
	mustBeReset(t, nodePort(port))
	if _, dials := r.opened(); dials != 3 {
		t.Errorf("want 3 attempts, got %d", dials)
	}
}

// A client waits for a silent endpoint as long as in the kernel, and then comes to another one.
func TestTheNextEndpointIsTriedAfterTheTimeOfTheService(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.try = time.Hour
	retried := web("TCP", port)
	retried.Annotations = map[string]string{model.AnnotationConnectionRetry: "true"}
	r.set(retried, slice("TCP", r.pod(0, silent), r.pod(1, tcpServer(t, echo('b')))))
	var clients []*net.TCPConn
	for range 20 { // by chance, some begin at the silent one
		clients = append(clients, dialTCP(t, nodePort(port)))
	}
	for _, c := range clients {
		var name [1]byte
		if _, err := io.ReadFull(c, name[:]); err != nil || name[0] != 'b' {
			t.Errorf("want the answer of b, got %q, %v", name, err)
		}
	}
}

// What was cut off must not look as if it were complete.
func TestAResetIsPassedOn(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	heard := make(chan error, 1)
	pod := r.pod(0, tcpServer(t, func(c *net.TCPConn) {
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err != nil || first[0] == 'r' {
			_ = c.SetLinger(0) // the deferred Close resets
			return
		}
		_, err := io.Copy(io.Discard, c)
		heard <- err
	}))
	r.set(web("TCP", port), slice("TCP", pod))

	c := dialTCP(t, nodePort(port))
	if _, err := io.WriteString(c, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server reset; the client got %v", err)
	}

	c = dialTCP(t, nodePort(port))
	if _, err := io.WriteString(c, "w"); err != nil {
		t.Fatal(err)
	}
	reset(c)
	if err := <-heard; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client reset; the server got %v", err)
	}
}

// A server that has heard enough answers, and says that this is all. The client is still sending, and gets the
// answer all the same, in whole.
func TestAnEarlyAnswerArrives(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	want := bytes.Repeat([]byte("too large "), 1000)
	pod := r.pod(0, tcpServer(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_, _ = c.Write(want)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}))
	r.set(web("TCP", port), slice("TCP", pod))
	c := dialTCP(t, nodePort(port))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 8<<20))
		sent <- err
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d of %d bytes of the answer, then %v", len(got), len(want), err)
	}
	if err := <-sent; err != nil {
		t.Errorf("the server reads all, and the client got %v", err)
	}
}

func TestAFullNodePortLetsClientsWait(t *testing.T) {
	r, port := newRig(t), testaid.FreePorts(t, 1)[0]
	r.limits.each = 2
	r.set(web("TCP", port), slice("TCP", r.pod(0, tcpServer(t, echo('a')))))
	_, first := who(t, nodePort(port))
	_, second := who(t, nodePort(port))

	third := dialTCP(t, nodePort(port))
	if err := third.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var name [1]byte
	if _, err := third.Read(name[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a third connection of two got %q, %v", name, err)
	}
	hangUp(first)
	within(t, third)
	if _, err := io.ReadFull(third, name[:]); err != nil {
		t.Errorf("one of two has ended, and the third waits: %v", err)
	}
	mustEcho(t, second)
}
