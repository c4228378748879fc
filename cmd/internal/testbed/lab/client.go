package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// askTimeout applies where the caller's context has no deadline. It is longer
// than the second after which TCP sends a lost SYN again, so a lost packet
// shows as latency, and a drop as a timeout.
const askTimeout = 2 * time.Second

// Answer is a server's answer.
type Answer struct {
	Pod    string         // the server's name
	Source netip.AddrPort // the client, as the server sees it
}

// Ask makes one connection, or sends one datagram, from the namespace to addr
// and returns the answer. Network is tcp or udp, with or without a 4 or 6.
// Without a deadline in ctx it takes at most two seconds. FailureOf returns the
// kind of an error.
func (ns *Namespace) Ask(ctx context.Context, network string, addr netip.AddrPort) (Answer, error) {
	return ns.AskFrom(ctx, netip.Addr{}, network, addr)
}

// AskFrom is Ask from one of the namespace's addresses. The zero Addr lets the
// kernel choose.
func (ns *Namespace) AskFrom(ctx context.Context, from netip.Addr, network string, to netip.AddrPort) (Answer, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	c, err := ns.DialFrom(ctx, netip.AddrPortFrom(from, 0), network, to)
	if err != nil {
		return Answer{}, err
	}
	defer c.Close()
	return c.ask(ctx, onceLine)
}

// Conn is a connection, or a UDP socket with a fixed peer, on which more than
// one question can be asked. One goroutine at a time may use it.
type Conn struct {
	from    string
	network string
	to      netip.AddrPort
	conn    net.Conn
	in      *bufio.Reader
}

// Dial connects the namespace with addr; see Ask about network, time and errors,
// except that here the two seconds are for each call. Over UDP nothing is sent yet.
func (ns *Namespace) Dial(ctx context.Context, network string, addr netip.AddrPort) (*Conn, error) {
	return ns.DialFrom(ctx, netip.AddrPort{}, network, addr)
}

// DialFrom is Dial from one of the namespace's addresses, and a port. The kernel chooses if they are zero.
func (ns *Namespace) DialFrom(
	ctx context.Context, from netip.AddrPort, network string, to netip.AddrPort,
) (*Conn, error) {
	if network == "tcp" || network == "udp" {
		family := "6"
		if to.Addr().Unmap().Is4() {
			family = "4"
		}
		network += family
	}
	c := &Conn{from: ns.name, network: network, to: to}
	dialCtx, cancel := withTimeout(ctx)
	defer cancel()
	err := ns.do(func(leave func()) (err error) {
		// For a literal address package net makes the socket on the calling goroutine, hence in the namespace. What
		// comes then, needs no thread: thousands may connect at a time.
		control := func(string, string, syscall.RawConn) error { leave(); return nil }
		d := net.Dialer{LocalAddr: localAddr(from, network), Control: control}
		c.conn, err = d.DialContext(dialCtx, network, to.String())
		return err
	})
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	c.in = bufio.NewReader(c.conn)
	return c, nil
}

// DialContext is that of a [net.Dialer] in the namespace.
func (ns *Namespace) DialContext(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// localAddr returns the address that a Dialer binds to; nil for the zero Addr.
func localAddr(source netip.AddrPort, network string) net.Addr {
	switch {
	case !source.Addr().IsValid():
		return nil
	case strings.HasPrefix(network, "tcp"):
		return net.TCPAddrFromAddrPort(source)
	}
	return net.UDPAddrFromAddrPort(source)
}

// Local returns the connection's address at the client.
func (c *Conn) Local() netip.AddrPort {
	switch a := c.conn.LocalAddr().(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

// Ask asks once more and leaves the connection open. Over UDP, an ICMP port
// unreachable for what was sent before shows as a Refused error.
func (c *Conn) Ask(ctx context.Context) (Answer, error) { return c.ask(ctx, keepLine) }

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// ask sends a line and reads the answer; after onceLine it also waits for the
// server to close, see there.
func (c *Conn) ask(ctx context.Context, line string) (Answer, error) {
	askCtx, cancel := withTimeout(ctx)
	defer cancel()
	// The context's end becomes a deadline in the past, which wakes a reader.
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return Answer{}, c.failed(ctx, err)
	}
	stop := context.AfterFunc(askCtx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	// If a rule of the output path rejects or drops a datagram, the kernel returns EPERM for
	// both. Waiting for an answer shows which of the two it was.
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil && !errors.Is(err, unix.EPERM) {
		return Answer{}, c.failed(ctx, err)
	}
	text, err := c.in.ReadString('\n')
	if err != nil {
		return Answer{}, c.failed(ctx, err)
	}
	if line == onceLine && !strings.HasPrefix(c.network, "udp") {
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
			return Answer{}, c.failed(ctx, fmt.Errorf("wait for the server to close: %w", err))
		}
	}
	a, err := parseAnswer(text)
	if err != nil {
		return Answer{}, c.failed(ctx, err)
	}
	return a, nil
}

// failed names the connection and the kind of failure. If the caller's context ended, that is the cause, and not
// the deadline that woke the connection.
func (c *Conn) failed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err()
	}
	return fmt.Errorf("%s from %s to %s: %s: %w", c.network, c.from, c.to, FailureOf(err), err)
}

// parseAnswer parses the line of Server.answer.
func parseAnswer(text string) (Answer, error) {
	name, source, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("read answer %q: %w", text, err)
	}
	return Answer{Pod: name, Source: addr}, nil
}

// withTimeout gives a context without a deadline one.
func withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, askTimeout)
}
