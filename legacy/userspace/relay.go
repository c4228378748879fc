package userspace

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// relay forwards in both directions until both have ended, and closes both connections.
// The receiver of an incomplete direction gets a reset, so that it does not take the data
// for complete.
//
// If one direction breaks, because one of the peers is gone, the other direction may still
// hold data that this peer had sent before. It need not end by itself, as a peer that only
// waits never notices. So it is given a short time.
func (e *env) relay(p model.Protocol, client, server *net.TCPConn) {
	toServer := make(chan error, 1)
	go func() { toServer <- e.forward(p, server, client, client, server) }()
	toClient := e.forward(p, client, server, client, server)
	finish(server, <-toServer)
	finish(client, toClient)
}

// forward forwards in one direction. If it breaks, both connections get a short time. So do those of SCTP at its
// end: an association ends as a whole, and poll(2) never tells the end of one that was shut down here (sctp_poll).
func (e *env) forward(p model.Protocol, to, from, client, server *net.TCPConn) error {
	var err error
	if p == model.SCTP { // a function value would have a frame, and with it each goroutine's stack double its size
		err = e.pumpMessages(to, from)
	} else {
		err = e.pump(to, from)
	}
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil || p == model.SCTP {
		end := time.Now().Add(e.limits.grace)
		_ = client.SetDeadline(end) // fails only if it is closed
		_ = server.SetDeadline(end)
	}
	return err
}

// finish closes a connection whose sender's data was forwarded, all of it if err is nil.
func finish(c *net.TCPConn, err error) {
	if err != nil {
		reset(c)
		return
	}
	_ = c.Close() // nothing can be done about it
}

// reset closes a connection so that the peer gets an error instead of an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close() // nothing can be done about it
}

// chunk is the most that a direction holds outside of sockets: the kernel's default for a pipe.
const chunk = 64 << 10

// pipe is one for splice(2). Both ends are closed with it.
type pipe struct{ r, w int }

// pipes are pipes that nothing is in, so that any connection may use them. A connection has one only
// while data is on its way: io.Copy would keep two for each connection, with two files each, for as
// long as it lasts.
type pipes struct {
	mu   sync.Mutex
	idle []pipe
	made int // that are not closed
	most int // 0: mostPipes
}

// maxIdlePipes is the number of pipes that are kept, and mostPipes that of all.
const (
	maxIdlePipes = 64
	mostPipes    = 4096
)

func (p *pipes) get() (pipe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		one := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return one, nil
	}
	var fds [2]int
	if p.made >= cmp.Or(p.most, mostPipes) {
		return pipe{}, errNoSplice
	}
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, os.NewSyscallError("pipe2", err)
	}
	p.made++
	return pipe{fds[0], fds[1]}, nil
}

// put takes an empty pipe back.
func (p *pipes) put(one pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= maxIdlePipes {
		p.made--
		one.close()
		return
	}
	p.idle = append(p.idle, one)
}

// drop closes a pipe that data is in.
func (p *pipes) drop(one pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made--
	one.close()
}

func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.idle {
		one.close()
	}
	p.idle = nil
}

func (p pipe) close() {
	_ = unix.Close(p.r) // nothing can be done about it
	_ = unix.Close(p.w)
}

// pump copies from one connection to the other until the end, by splice(2) where the kernel and
// the number of open files allow it.
func (e *env) pump(to, from *net.TCPConn) error {
	dst, src, err := rawConns(to, from)
	if err != nil {
		return err
	}
	for {
		n, err := e.spliceOnce(dst, src)
		e.counts.spliced.Add(uint64(n))
		switch {
		case errors.Is(err, errNoSplice):
			return e.copyAll(to, from, src)
		case err != nil:
			return err
		case n == 0:
			return nil
		}
	}
}

func rawConns(to, from *net.TCPConn) (dst, src syscall.RawConn, err error) {
	dst, err = to.SyscallConn()
	src, err2 := from.SyscallConn()
	return dst, src, errors.Join(err, err2)
}

// errNoSplice is the error of a kernel, a kind of socket or a shortage of files that does not allow
// splice.
var errNoSplice = errors.New("no splice")

// spliceOnce waits for data and forwards some; 0 is the end.
func (e *env) spliceOnce(dst, src syscall.RawConn) (n int, err error) {
	var p pipe
	holds := false
	waitErr := src.Read(func(fd uintptr) bool {
		if p, err = e.pipes.get(); err != nil {
			err = errNoSplice
			return true
		}
		n, err = splice(int(fd), p.w, chunk)
		switch {
		case n > 0:
			holds = true
			return true
		case errors.Is(err, unix.EAGAIN):
			e.pipes.put(p)
			err = nil
			return false
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM):
			err = errNoSplice
		}
		e.pipes.put(p)
		return true
	})
	if waitErr != nil || !holds {
		return 0, errors.Join(waitErr, err)
	}
	for left := n; left > 0; {
		var m int
		waitErr := dst.Write(func(fd uintptr) bool {
			m, err = splice(p.r, int(fd), left)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err = errors.Join(waitErr, err); err != nil {
			e.pipes.drop(p)
			return n, err
		}
		left -= m
	}
	e.pipes.put(p)
	return n, nil
}

func splice(from, to, most int) (int, error) {
	for {
		n, err := unix.Splice(from, nil, to, nil, most, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return int(max(n, 0)), err
	}
}

// copyAll copies until the end by a buffer that the direction has only while data is on its way.
func (e *env) copyAll(to, from *net.TCPConn, src syscall.RawConn) error {
	for {
		if err := awaitReadable(src); err != nil {
			return err
		}
		buffer := e.buffers.Get().(*[maxDatagram]byte)
		n, err := from.Read(buffer[:])
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		e.buffers.Put(buffer)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
