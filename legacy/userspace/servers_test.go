package userspace

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
)

// tcpServer serves each connection with handle until the test ends.
func tcpServer(t testing.TB, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { hangUp(c) })
			all.Go(func() {
				defer stop()
				defer hangUp(c)
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		hangUp(l)
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// echo says its name, one byte, and then what it hears; its end after the client's.
func echo(name byte) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		if _, err := c.Write([]byte{name}); err == nil {
			_, _ = io.Copy(c, c)
		}
	}
}

// dialTCP connects to a node port.
func dialTCP(t *testing.T, at string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return within(t, c.(*net.TCPConn))
}

// who connects to an echo and returns its name, and the connection.
func who(t *testing.T, at string) (byte, *net.TCPConn) {
	t.Helper()
	c := dialTCP(t, at)
	var name [1]byte
	if _, err := io.ReadFull(c, name[:]); err != nil {
		t.Fatalf("read a name: %v", err)
	}
	return name[0], c
}

// whoOnce is who for a connection that is not needed.
func whoOnce(t *testing.T, at string) byte {
	t.Helper()
	name, c := who(t, at)
	hangUp(c)
	return name
}

func mustBeRefused(t *testing.T, at string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, patience)
	if err == nil {
		hangUp(c)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect to %s: want it refused, got %v", at, err)
	}
}

// mustBeReset fails if a connection is not accepted and then reset, maybe so soon that
// the client sees nothing of the former.
func mustBeReset(t *testing.T, at string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", at, patience)
	if err == nil {
		_, err = io.Copy(io.Discard, within(t, c))
		hangUp(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connect to %s: want a reset, got %v", at, err)
	}
}

// mustEcho fails if what is sent does not come back.
func mustEcho(t *testing.T, c *net.TCPConn) {
	t.Helper()
	sent := rand.Text()
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		t.Fatalf("want %q back, got %q, %v", sent, got, err)
	}
}

// refusingTCP is an address that refuses connections, and stays free.
func refusingTCP(t *testing.T) netip.AddrPort {
	t.Helper()
	// A client's port, held by a connection to a server, has no listener.
	server := tcpServer(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	c := dialTCP(t, server.String())
	return c.LocalAddr().(*net.TCPAddr).AddrPort()
}

// udpServer answers each datagram with its name, one byte, and the datagram.
func udpServer(t testing.TB, name byte) netip.AddrPort {
	t.Helper()
	return udpServing(t, func(c *net.UDPConn, datagram []byte, client netip.AddrPort) {
		_, _ = c.WriteToUDPAddrPort(append([]byte{name}, datagram...), client)
	})
}

// udpServing handles each datagram, one after the other, until the test ends.
func udpServing(t testing.TB, handle func(c *net.UDPConn, datagram []byte, client netip.AddrPort)) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var loop sync.WaitGroup
	loop.Go(func() {
		buffer := make([]byte, maxDatagram)
		for {
			n, client, err := c.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			handle(c, buffer[:n], client)
		}
	})
	t.Cleanup(func() {
		hangUp(c)
		loop.Wait()
	})
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// refusingUDP is an address that refuses datagrams, and stays free: a socket that is
// connected elsewhere has its port.
func refusingUDP(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(udpServer(t, '-')))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func dialUDP(t *testing.T, at string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(c) })
	return within(t, c.(*net.UDPConn))
}

// ask sends a datagram and returns who answers.
func ask(t *testing.T, c *net.UDPConn, datagram string) byte {
	t.Helper()
	if _, err := io.WriteString(c, datagram); err != nil {
		t.Fatal(err)
	}
	return answer(t, c, datagram)
}

func answer(t *testing.T, c *net.UDPConn, datagram string) byte {
	t.Helper()
	buffer := make([]byte, maxDatagram)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatalf("wait for an answer: %v", err)
	}
	if got := string(buffer[1:n]); got != datagram {
		t.Fatalf("want %d bytes back, got %d others", len(datagram), len(got))
	}
	return buffer[0]
}
