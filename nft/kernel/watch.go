package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Watched is a Backend that notices when others change its tables, where the kernel does not
// prevent it (see [Backend.Owned]).
//
// The kernel tells a netlink group of each transaction: a message for each object or
// element, then one for the new generation of rules, which names the process. Who caused
// it is said by the port of the connection that sent the batch, in each message's header
// (nlmsg_pid). The process ID in the last message would not do: it is a thread's, as the
// host numbers them, and a container can't tell whether that is one of its own.
//
// Messages about our own changes are dropped by a filter in the kernel, before they take
// room in the socket's buffer: a cold start with 250,000 endpoints makes 25 MB of them.
// So an overrun, after which something may have been missed, is by others, too, and rare
// enough to be answered like a change.
type Watched struct {
	*Backend
	socket  *netlink.Conn
	joined  bool   // the group
	ignored uint32 // the port whose messages are dropped
	changed chan struct{}
	foreign atomic.Uint64
	overrun atomic.Uint64
}

// groupNFTables is NFNLGRP_NFTABLES.
const groupNFTables = 7

// Watch begins to listen to changes: none from now on is missed once Run is called. From
// now on the result must be used in place of b.
func (b *Backend) Watch() (*Watched, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: b.netns})
	if err != nil {
		return nil, fmt.Errorf("watch tables: open netlink connection: %w", err)
	}
	w := &Watched{Backend: b, socket: socket, changed: make(chan struct{}, 1)}
	if err := w.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch tables: %w", err), socket.Close())
	}
	return w, nil
}

func (w *Watched) listen() error {
	if err := w.socket.SetReadBuffer(readBuffer); err != nil {
		return fmt.Errorf("enlarge read buffer: %w", err)
	}
	if err := w.ignoreOwn(); err != nil {
		return err
	}
	if w.Owned() {
		return nil // unless it turns out otherwise, see follow
	}
	return w.join()
}

func (w *Watched) join() error {
	if err := w.socket.JoinGroup(groupNFTables); err != nil {
		return fmt.Errorf("join the group for nftables: %w", err)
	}
	w.joined = true
	return nil
}

// follow leaves the group while all tables are owned: nobody can change them then, and while
// somebody is in the group, the kernel makes a message of each element of a batch, which
// takes longer than all else that it does for it. A table that was there before may have no
// owner on any kernel.
func (w *Watched) follow() error {
	all := true
	for _, st := range w.families {
		all = all && st.owned
	}
	switch {
	case all && w.joined:
		if err := w.socket.LeaveGroup(groupNFTables); err != nil {
			return fmt.Errorf("leave the group for nftables: %w", err)
		}
		w.joined = false
	case !all && !w.joined:
		w.Resync() // something may have changed already
		return w.join()
	}
	return nil
}

// Changed receives when others may have changed our tables since it last received.
func (w *Watched) Changed() <-chan struct{} { return w.changed }

// ForeignChanges count the changes by others.
type ForeignChanges struct {
	Changes  uint64 // transactions that changed our tables
	Overruns uint64 // times when too much happened at once to know
}

// ForeignChanges returns the changes by others since Watch. It may be called at any time.
func (w *Watched) ForeignChanges() ForeignChanges {
	return ForeignChanges{Changes: w.foreign.Load(), Overruns: w.overrun.Load()}
}

// Apply is that of the Backend.
func (w *Watched) Apply(ctx context.Context, s *model.Snapshot) error {
	err := w.Backend.Apply(ctx, s)
	if err == nil {
		if err := w.follow(); err != nil {
			w.log.LogAttrs(ctx, slog.LevelWarn, "changes of our tables by others may go unnoticed", slog.Any("err", err))
		}
	}
	// It may have ended with a new connection. Nothing was changed over that yet.
	if w.conn.socket.Port() == w.ignored {
		return err
	}
	if err := w.ignoreOwn(); err != nil {
		w.log.LogAttrs(ctx, slog.LevelWarn, "our own changes will be taken for those of others", slog.Any("err", err))
	}
	return err
}

// ignoreOwn makes the kernel drop messages about what our connection changes. Those of
// one transaction may share a datagram, those of two never do, so that the first
// message's port is that of all.
func (w *Watched) ignoreOwn() error {
	const portOffset, all = 12, 1<<32 - 1 // offsetof(struct nlmsghdr, nlmsg_pid)
	port := w.conn.socket.Port()
	// A filter loads in network order what the header has in the host's.
	loaded := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: portOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: loaded, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	raw, err := w.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach netlink socket: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	if err := errors.Join(err, setErr); err != nil {
		return fmt.Errorf("filter what we changed: %w", err)
	}
	w.ignored = port
	return nil
}

// Run notices changes until ctx ends; it returns nil then. It may run next to Apply.
func (w *Watched) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = w.socket.Close() })
	defer stop()
	defer func() { _ = w.socket.Close() }()
	raw, err := w.socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach netlink socket: %w", err)
	}
	const largest = 64 << 10 // the kernel joins messages to a page or two
	l := listener{notice: w.notice, buffer: make([]byte, largest)}
	for {
		err := l.receive(raw)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			// Until the buffer is empty, the kernel goes on dropping messages and says no
			// more about it.
			l.overrun, l.touched = true, false
		case err != nil:
			return fmt.Errorf("watch tables: %w", err)
		}
	}
}

// change is a change by others.
type change struct {
	overrun bool // the rest is unknown, and whether there was anything
	pid     uint32
	process string
}

func (w *Watched) notice(c change) {
	count := &w.foreign
	if c.overrun {
		count = &w.overrun
	}
	count.Add(1)
	select {
	case w.changed <- struct{}{}:
	default:
		return // nobody has looked after the last one yet
	}
	if c.overrun {
		w.log.LogAttrs(context.Background(), slog.LevelInfo, "too many changes by others to follow")
		return
	}
	w.log.LogAttrs(context.Background(), slog.LevelInfo, "tables changed by another process",
		slog.String("process", c.process), slog.Uint64("thread", uint64(c.pid)))
}

// listener parses the messages of the group.
type listener struct {
	notice  func(change)
	buffer  []byte
	overrun bool // messages were lost, and the buffer was not empty since
	touched bool // the transaction that is being told of changed a table of ours
}

// receive waits for a datagram and reads it.
func (l *listener) receive(raw syscall.RawConn) error {
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), l.buffer, 0)
		if !errors.Is(failed, unix.EAGAIN) {
			return true
		}
		if l.overrun {
			l.overrun = false
			l.notice(change{overrun: true})
		}
		return false
	})
	if err := errors.Join(err, failed); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	if failed == nil {
		l.read(l.buffer[:n])
	}
	return nil
}

// read understands one datagram.
func (l *listener) read(datagram []byte) {
	const header = unix.SizeofNlMsghdr + 4 // and struct nfgenmsg
	for {
		message, rest, ok := cutMessage(datagram)
		if !ok || len(message) < header {
			return
		}
		datagram = rest
		msgType := binary.NativeEndian.Uint16(message[4:])
		family, attrs := message[unix.SizeofNlMsghdr], message[header:]
		if msgType>>8 != unix.NFNL_SUBSYS_NFTABLES {
			continue
		}
		if msgType&0xff != unix.NFT_MSG_NEWGEN {
			l.touched = l.touched || isOurs(family, attrs)
			continue
		}
		if l.touched {
			l.notice(change{
				pid:     readUint32(first(attrs, unix.NFTA_GEN_PROC_PID)),
				process: string(withoutZero(first(attrs, unix.NFTA_GEN_PROC_NAME))),
			})
		}
		l.touched = false
	}
}

// isOurs reports whether a message is about a table of ours, or something in it.
func isOurs(family byte, attrs []byte) bool {
	isIP := family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6
	return isIP && string(withoutZero(first(attrs, objectTable))) == nft.TableName
}
