package trace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

var errNotTraced = errors.New("no rule of the kernel's has seen the connection that vmapd made")

// dialed is the end of a connection that vmapd made.
type dialed struct {
	from  uint16 // the local port
	err   error
	ended time.Time
}

// dial makes a connection. The port is known before the first packet, also of a connection that
// fails.
func (w *watcher) dial(ctx context.Context) (d dialed) {
	defer func() { d.ended = time.Now() }()
	if w.From != nil {
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(int(w.From.Fd()), unix.CLONE_NEWNET); err != nil {
			d.err = fmt.Errorf("enter the client's network namespace: %w", err)
			return d
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.Wait+time.Second)
	defer cancel()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var bindErr error
		err := c.Control(func(fd uintptr) { d.from, bindErr = bind(int(fd), w.Filter.Source, w.Filter.Dest.Addr().Is6()) })
		return errors.Join(err, bindErr)
	}}
	network := "udp"
	if w.Filter.Protocol == model.TCP {
		network = "tcp"
	}
	conn, err := dialer.DialContext(ctx, network, w.Filter.Dest.String())
	if err != nil {
		d.err = err
		return d
	}
	defer conn.Close()
	if w.Filter.Protocol != model.TCP {
		_ = conn.SetDeadline(time.Now().Add(w.Wait))
		if _, d.err = conn.Write([]byte("\n")); d.err == nil {
			_, d.err = conn.Read(make([]byte, 1))
		}
	}
	return d
}

// bind chooses a port, so that it is known.
func bind(fd int, source netip.Addr, is6 bool) (uint16, error) {
	var at unix.Sockaddr = &unix.SockaddrInet4{}
	switch {
	case is6 && source.IsValid():
		at = &unix.SockaddrInet6{Addr: source.As16()}
	case is6:
		at = &unix.SockaddrInet6{}
	case source.IsValid():
		at = &unix.SockaddrInet4{Addr: source.As4()}
	}
	if err := unix.Bind(fd, at); err != nil {
		return 0, fmt.Errorf("connect from %v: %w", source, err)
	}
	bound, err := unix.Getsockname(fd)
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port), err
	case *unix.SockaddrInet6:
		return uint16(a.Port), err
	}
	return 0, err
}

func (d *dialed) outcome() string {
	switch {
	case d.err == nil:
		return "it succeeded"
	case errors.Is(d.err, unix.ECONNREFUSED):
		return "refused"
	case errors.Is(d.err, os.ErrDeadlineExceeded), errors.Is(d.err, context.DeadlineExceeded):
		return "no answer in time"
	}
	return d.err.Error()
}
