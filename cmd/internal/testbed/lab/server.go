package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The protocol between client and server, over TCP one line each way, over UDP
// one datagram: the client says anything, the server answers with its name and
// the address it sees, "pod-1 203.0.113.9:40512". Over TCP the server then
// closes the connection, unless the client's line was keepLine.
//
// The server must close first: the side that does keeps the port in TIME_WAIT
// for a minute. At the client that would use up the 28,000 ports to
// one address within two minutes at 250 connections per second; at the server
// it is a server's port, and Linux reuses the pair as soon as the client
// connects from there again.
const (
	onceLine = "once"
	keepLine = "keep"
)

// Server answers on one port of a namespace over TCP and UDP, in both families.
type Server struct {
	name    string
	cancel  context.CancelFunc
	closers []func() error
	running sync.WaitGroup
}

// Serve starts a server on all addresses of the namespace. It answers with
// name, which must not contain spaces, until it is closed.
func (ns *Namespace) Serve(name string, port uint16) (*Server, error) {
	s, err := serve(name, port, ns.Do)
	if err != nil {
		return nil, fmt.Errorf("serve port %d in %s: %w", port, ns.name, err)
	}
	return s, nil
}

// Serve is Namespace.Serve where the process itself is, without privilege.
func Serve(name string, port uint16) (*Server, error) {
	s, err := serve(name, port, func(listen func() error) error { return listen() })
	if err != nil {
		return nil, fmt.Errorf("serve port %d: %w", port, err)
	}
	return s, nil
}

func serve(name string, port uint16, in func(func() error) error) (*Server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{name: name, cancel: cancel}
	if err := in(func() error { return s.listen(ctx, port) }); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close stops answering, breaks open connections and waits until all is done.
// From then on connections to the port are refused.
func (s *Server) Close() {
	s.cancel()
	for _, c := range s.closers {
		_ = c() // a socket that closes badly is closed nevertheless
	}
	s.running.Wait()
}

// listen opens the sockets where the caller is, and serves them.
func (s *Server) listen(ctx context.Context, port uint16) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // plain TCP, whatever Go's default is
	for _, family := range []string{"4", "6"} {
		// With the family in the network's name, [::] means IPv6 only.
		addr := net.JoinHostPort(map[string]string{"4": "0.0.0.0", "6": "::"}[family], strconv.Itoa(int(port)))
		listener, err := lc.Listen(ctx, "tcp"+family, addr)
		if err != nil {
			return err
		}
		s.closers = append(s.closers, listener.Close)
		s.running.Go(func() { s.serveTCP(ctx, listener) })

		packets, err := lc.ListenPacket(ctx, "udp"+family, addr)
		if err != nil {
			return err
		}
		conn := packets.(*net.UDPConn)
		s.closers = append(s.closers, conn.Close)
		if err := tellDestination(conn, family); err != nil {
			return err
		}
		s.running.Go(func() { s.serveUDP(conn) })
	}
	return nil
}

// answer is the line for a client at addr.
func (s *Server) answer(addr netip.AddrPort) []byte {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	return fmt.Appendf(nil, "%s %s\n", s.name, addr)
}

// serveTCP accepts connections until the listener is closed.
func (s *Server) serveTCP(ctx context.Context, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: that passes, but not at once.
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		s.running.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			s.talk(conn)
		})
	}
}

// talk answers the lines of one connection.
func (s *Server) talk(conn net.Conn) {
	line := s.answer(conn.RemoteAddr().(*net.TCPAddr).AddrPort())
	for in := bufio.NewScanner(conn); in.Scan(); {
		if _, err := conn.Write(line); err != nil || in.Text() != keepLine {
			return
		}
	}
}

// tellDestination makes the kernel tell which address each datagram was sent to.
func tellDestination(conn *net.UDPConn, family string) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if family == "6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	var setErr error
	err = raw.Control(func(fd uintptr) { setErr = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, setErr)
}

// sameAddress returns the control message by which an answer comes from the address that
// was asked, for a machine may have several. oob is what came with the datagram.
func sameAddress(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])})
		case m.Header.Level == unix.IPPROTO_IPV6 && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])})
		}
	}
	return nil
}

// serveUDP answers datagrams until the socket is closed.
func (s *Server) serveUDP(conn *net.UDPConn) {
	buf, oob := make([]byte, 2048), make([]byte, 128)
	for {
		_, n, _, addr, err := conn.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an answer that no client waited for
		}
		_, _, _ = conn.WriteMsgUDPAddrPort(s.answer(addr), sameAddress(oob[:n]), addr) // lost like any datagram
	}
}
