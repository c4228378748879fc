package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Watch begins to notice when others change the tables, where the kernel does not prevent it (see [Backend.Owned]), and
// sends to changed without waiting for a receiver. Tables that are owned need no watch, which would cost a message for
// each element of a batch.
func (b *Backend) Watch(changed chan<- struct{}) (*Watch, error) {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: b.wants.NetNS})
	if err != nil {
		return nil, fmt.Errorf("watch tables: open netlink connection: %w", err)
	}
	err = cmp.Or(
		socket.SetReadBuffer(readBuffer), ignore(socket, b.conn.socket.Port()), socket.JoinGroup(unix.NFNLGRP_NFTABLES),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch tables: %w", err), socket.Close())
	}
	return &Watch{log: b.wants.Log, socket: socket, changed: changed}, nil
}

// Watch is a socket for the netlink group to which the kernel reports each transaction: a message for each object or
// element, then one for the new generation of rules, which names the process. Who caused it is the port of the
// connection that sent the batch, in each message's header (nlmsg_pid).
//
// A filter in the kernel drops messages about what one port changes, our own, before they take room in the socket's
// buffer: a cold start with 250,000 endpoints makes 25 MB of them. So an overrun is by others, too, and answered like a
// change.
type Watch struct {
	log     *slog.Logger
	socket  *netlink.Conn
	changed chan<- struct{}
	touched bool // Run's: the present transaction changed something of ours
}

// ignore makes the kernel drop datagrams with a first message about what a port changes. Messages of one transaction
// may share a datagram, those of two never do, so that the first message's port is that of all.
func ignore(socket *netlink.Conn, port uint32) error {
	const portOffset, portSize, all = 12, 4, 1<<32 - 1 // offsetof(struct nlmsghdr, nlmsg_pid)
	// A filter loads in network order what the header has in the host's.
	loaded := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port))
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: portOffset, Size: portSize},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded, SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: all},
	})
	if err != nil {
		return err
	}
	return socket.SetBPF(program)
}

// Run notices changes until ctx ends; it returns nil then. It may run next to Apply.
func (w *Watch) Run(ctx context.Context) error {
	end := func() { _ = w.socket.Close() }
	defer end()
	defer context.AfterFunc(ctx, end)()
	for {
		messages, err := w.socket.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // for milliseconds more, until the buffer is empty, changes are not noticed
			w.notice("too many changes by other programs to follow")
		case err != nil:
			return fmt.Errorf("watch rules: %w", err)
		}
		for _, m := range messages {
			w.read(m)
		}
	}
}

// notice reports a change by others, and logs it unless nobody has looked after the last one yet.
func (w *Watch) notice(text string, attrs ...slog.Attr) {
	select {
	case w.changed <- struct{}{}:
		w.log.LogAttrs(context.Background(), slog.LevelInfo, text, attrs...)
	default:
	}
}

func (w *Watch) read(m netlink.Message) {
	if len(m.Data) < nfnl.HeaderSize || m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return
	}
	family, attrs := m.Data[0], m.Data[nfnl.HeaderSize:]
	if m.Header.Type&0xff != unix.NFT_MSG_NEWGEN {
		isIP := family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6
		w.touched = w.touched || isIP && nfnl.String(attrs, objectTable) == nft.TableName
		return
	}
	if w.touched {
		w.notice("rules changed by another program",
			slog.String("process", nfnl.String(attrs, unix.NFTA_GEN_PROC_NAME)),
			slog.Uint64("thread", uint64(nfnl.Uint32(nfnl.First(attrs, unix.NFTA_GEN_PROC_PID)))))
	}
	w.touched = false
}
