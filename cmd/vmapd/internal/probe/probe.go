package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/model"
)

// Prober connects from one network namespace.
type Prober struct {
	Timeout time.Duration // for each connection
	// NetNS is the network namespace; nil: that of the process.
	NetNS *os.File
}

// All connects to all addresses at the same time. The answers are in the order of the addresses.
func (p Prober) All(protocol model.Protocol, to []netip.AddrPort) []explain.Answer {
	out := make([]explain.Answer, len(to))
	var wait sync.WaitGroup
	for i, a := range to {
		wait.Go(func() { out[i] = p.one(protocol, a) })
	}
	wait.Wait()
	return out
}

// one connects. The thread of a goroutine that has entered another network namespace ends with it.
func (p Prober) one(protocol model.Protocol, to netip.AddrPort) explain.Answer {
	if p.NetNS != nil {
		runtime.LockOSThread()
		if err := unix.Setns(int(p.NetNS.Fd()), unix.CLONE_NEWNET); err != nil {
			return explain.Answer{Address: to.String(), Result: explain.AnswerFailed, Detail: fmt.Sprintf("enter the pod's network namespace: %v", err)}
		}
	}
	start := time.Now()
	s, err := open(protocol, to)
	if err == nil {
		err = s.connect(to, p.Timeout)
		if err == nil && protocol == model.UDP {
			err = s.askUDP(p.Timeout)
		}
	}
	a := s.answer(err)
	a.Address = to.String()
	if a.Result == explain.AnswerConnected {
		a.Milliseconds = float64(time.Since(start).Microseconds()) / 1000
	}
	s.close()
	return a
}

// socket is one socket that does not block.
type socket struct {
	fd int
	v6 bool
}

var (
	errSilent   = errors.New("no answer")
	errNoSocket = errors.New("no socket")
)

func open(protocol model.Protocol, to netip.AddrPort) (*socket, error) {
	s := &socket{fd: -1, v6: to.Addr().Is6()}
	domain, kind, number := unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP
	if s.v6 {
		domain = unix.AF_INET6
	}
	switch protocol {
	case model.UDP:
		kind, number = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case model.SCTP:
		number = unix.IPPROTO_SCTP
	case model.TCP:
	}
	var err error
	if s.fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, number); err != nil {
		return s, fmt.Errorf("%w for %v: %w", errNoSocket, protocol, err)
	}
	if s.v6 {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	} else {
		err = unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	}
	return s, err
}

func (s *socket) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
}

// connect waits for the connection, or for an error.
func (s *socket) connect(to netip.AddrPort, timeout time.Duration) error {
	var sa unix.Sockaddr
	if s.v6 {
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	} else {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if err := unix.Connect(s.fd, sa); !errors.Is(err, unix.EINPROGRESS) {
		return err // nil with UDP
	}
	return s.wait(unix.POLLOUT, timeout)
}

// askUDP sends an empty datagram, and waits for a reply or for an error.
func (s *socket) askUDP(timeout time.Duration) error {
	if _, err := unix.Write(s.fd, nil); err != nil {
		return err
	}
	return s.wait(unix.POLLIN, timeout)
}

// wait waits for events of the socket, and returns its error.
func (s *socket) wait(events int16, timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; {
		left := time.Until(end)
		if left <= 0 {
			return errSilent
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == 0:
			continue
		case err != nil:
			return err
		}
		code, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}
