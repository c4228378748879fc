package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Watched is a Backend that notices when others change its tables, where the kernel does not
// prevent it (see [Backend.Owned]).
type Watched struct {
	*Backend
	group
}

// Watch begins to listen to changes, and sends to changed without waiting for a receiver. From now on the result must
// be used in place of b. Tables that are owned need no watch, which would cost a message for each element of a batch.
func (b *Backend) Watch(changed chan<- struct{}) (*Watched, error) {
	w := &Watched{Backend: b, group: group{log: b.log, changed: changed}}
	if err := w.open(b.netns); err != nil {
		return nil, fmt.Errorf("watch tables: %w", err)
	}
	if err := cmp.Or(w.ignore(w.conn.socket.Port()), w.socket.JoinGroup(unix.NFNLGRP_NFTABLES)); err != nil {
		return nil, errors.Join(fmt.Errorf("watch tables: %w", err), w.socket.Close())
	}
	return w, nil
}

// Apply is that of the Backend.
func (w *Watched) Apply(ctx context.Context, s *model.Snapshot) error {
	err := w.Backend.Apply(ctx, s)
	// It may have ended with a new connection. Nothing was changed over that yet.
	port := w.conn.socket.Port()
	if port == w.ignored {
		return err
	}
	if err := w.ignore(port); err != nil {
		w.group.log.Warn("our own changes may be reported as those of other programs", slog.Any("err", err))
	}
	return err
}

// isOurs reports whether a message is about a table of ours, or something in it.
func isOurs(family byte, attrs []byte) bool {
	isIP := family == unix.NFPROTO_IPV4 || family == unix.NFPROTO_IPV6
	return isIP && string(nfnl.Text(nfnl.First(attrs, objectTable))) == nft.TableName
}

// group is a socket for the netlink group to which the kernel reports each transaction: a message for each object or
// element, then one for the new generation of rules, which names the process. Who caused it is the port of the
// connection that sent the batch, in each message's header (nlmsg_pid).
//
// A filter in the kernel drops messages about what one port changes, our own, before they take room in the socket's
// buffer: a cold start with 250,000 endpoints makes 25 MB of them. So an overrun is by others, too, and answered like a
// change.
type group struct {
	log     *slog.Logger
	socket  *netlink.Conn
	ignored uint32 // drop messages of this port
	changed chan<- struct{}
	foreign atomic.Uint64
	overrun atomic.Uint64
	ended   atomic.Bool
	touched bool // Run's: the present transaction changed something of ours
}

// ForeignChanges count the changes by others.
type ForeignChanges struct {
	Changes  uint64 // transactions that changed our rules
	Overruns uint64 // times when too much happened at once to know
}

// open opens the socket in a network namespace, outside of the group.
func (g *group) open(netns int) error {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return fmt.Errorf("open netlink connection: %w", err)
	}
	g.socket = socket
	if err := socket.SetReadBuffer(readBuffer); err != nil {
		return errors.Join(fmt.Errorf("enlarge read buffer: %w", err), socket.Close())
	}
	return nil
}

// ForeignChanges returns the changes by others since the watch began. It may be called at any time.
func (g *group) ForeignChanges() ForeignChanges {
	return ForeignChanges{Changes: g.foreign.Load(), Overruns: g.overrun.Load()}
}

// ignore makes the kernel drop messages about what a port changes, and no other's. After the end
// of Run, there are none.
func (g *group) ignore(port uint32) error {
	if err := g.filter(port); err != nil && !g.ended.Load() {
		return fmt.Errorf("filter what we changed: %w", err)
	}
	g.ignored = port
	return nil
}

// filter drops datagrams with a first message about what a port changes. Messages of one transaction may share a
// datagram, those of two never do, so that the first message's port is that of all.
func (g *group) filter(port uint32) error {
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
	return g.socket.SetBPF(program)
}

func (g *group) close() {
	g.ended.Store(true)
	_ = g.socket.Close()
}

// Run notices changes until ctx ends; it returns nil then. It may run next to Apply.
func (g *group) Run(ctx context.Context) error {
	defer g.close()
	stop := context.AfterFunc(ctx, g.close)
	defer stop()
	overrun := false
	for {
		messages, err := g.receive(overrun)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			// Until the buffer is empty, the kernel goes on dropping messages and says no more about it.
			overrun, g.touched = true, false
		case errors.Is(err, os.ErrDeadlineExceeded):
			overrun = false
			g.notice(&g.overrun, "too many changes by other programs to follow")
		case err != nil:
			return fmt.Errorf("watch rules: %w", err)
		}
		for _, m := range messages {
			g.read(m)
		}
	}
}

// receive waits for messages; after an overrun, only until the buffer is empty.
func (g *group) receive(overrun bool) ([]netlink.Message, error) {
	var deadline time.Time
	if overrun {
		deadline = time.Now().Add(10 * time.Millisecond)
	}
	if err := g.socket.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	return g.socket.Receive()
}

// notice counts a change by others, and logs it unless nobody has looked after the last one yet.
func (g *group) notice(count *atomic.Uint64, text string, attrs ...slog.Attr) {
	count.Add(1)
	select {
	case g.changed <- struct{}{}:
		g.log.LogAttrs(context.Background(), slog.LevelInfo, text, attrs...)
	default:
	}
}

// read understands one message.
func (g *group) read(m netlink.Message) {
	const genmsg = 4 // sizeof(struct nfgenmsg)
	if len(m.Data) < genmsg || m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return
	}
	family, attrs := m.Data[0], m.Data[genmsg:]
	if m.Header.Type&0xff != unix.NFT_MSG_NEWGEN {
		g.touched = g.touched || isOurs(family, attrs)
		return
	}
	if g.touched {
		g.notice(&g.foreign, "rules changed by another program",
			slog.String("process", string(nfnl.Text(nfnl.First(attrs, unix.NFTA_GEN_PROC_NAME)))),
			slog.Uint64("thread", uint64(nfnl.Uint32(nfnl.First(attrs, unix.NFTA_GEN_PROC_PID)))))
	}
	g.touched = false
}
