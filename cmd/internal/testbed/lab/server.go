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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The protocol between client and server, over TCP one line in each direction, over UDP one datagram: the client says
// anything, the server answers with its name and the address it sees, "pod-1 203.0.113.9:40512". Over TCP the server
// then closes the connection, unless the client's line was keepLine.
//
// The server must close first: the side that does keeps the port in TIME_WAIT for a minute. At the client that would
// use up the 28,000 ports to one address within two minutes at 250 connections per second; at the server it is a
// server's port, and Linux reuses the pair as soon as the client connects from there again.
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
	addr := net.JoinHostPort("::", strconv.Itoa(int(port)))
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, listener.Close)
	s.running.Go(func() { s.serveTCP(ctx, listener) })

	lc.Control = reportDestination
	packets, err := lc.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, packets.Close)
	s.running.Go(func() { s.serveUDP(packets.(*net.UDPConn)) })
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
			if Pause(ctx, 10*time.Millisecond) != nil {
				return
			}
			continue
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

// reportDestination makes the kernel report which address each datagram was sent to, of either family.
func reportDestination(_, _ string, socket syscall.RawConn) error {
	var setErr error
	err := socket.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	return errors.Join(err, setErr)
}

// sameAddress returns the control message by which an answer comes from the address that
// was asked, for a machine may have several. oob is what came with the datagram.
func sameAddress(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 || len(messages[0].Data) != unix.SizeofInet6Pktinfo {
		return nil
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: [16]byte(messages[0].Data)})
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
