package kernel

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// elementsPerMessage keeps a message below the 64 KiB that the length of a netlink
// attribute can say, with the longest keys and comments there are.
const elementsPerMessage = 150

// conn is one lasting netlink connection. Everything must go over the same one: a
// table that is owned takes orders from no other.
type conn struct {
	lib *nftables.Conn
	raw *netlink.Conn // the socket below lib, for what lib can't say

	// sent is how many bytes of messages went to the kernel.
	sent int
}

// dial opens a connection in the network namespace of fd, or in the present one if fd
// is 0.
func dial(fd int) (*conn, error) {
	c := &conn{}
	keep := func(raw *netlink.Conn) error {
		c.raw = raw
		// The kernel says which attribute it did not like, and in words. Without this
		// option (before Linux 4.12) errors are only less precise.
		_ = raw.SetOption(netlink.ExtendedAcknowledge, true)
		return raw.SetReadBuffer(readBuffer)
	}
	lib, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(fd), nftables.WithSockOptions(keep))
	if err != nil {
		return nil, fmt.Errorf("open netlink connection: %w", err)
	}
	c.lib = lib
	if err := c.readInLargePieces(); err != nil {
		return nil, errors.Join(err, lib.CloseLasting())
	}
	return c, nil
}

// readInLargePieces makes the kernel answer with up to 32 KiB at a time, as much as it
// does (netlink_recvmsg: max_recvmsg_len): it remembers the largest buffer that anybody
// read into, and the library peeks with a page. For each piece of a set's elements the
// kernel walks the set from its beginning, so that reading a large set costs the square
// of the number of pieces.
func (c *conn) readInLargePieces() error {
	request := netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	}
	if _, err := c.raw.Send(request); err != nil {
		return fmt.Errorf("ask for the generation: %w", err)
	}
	socket, err := c.raw.SyscallConn()
	if err != nil {
		return fmt.Errorf("reach netlink socket: %w", err)
	}
	var readErr error
	err = socket.Read(func(fd uintptr) bool {
		const large = 64 << 10
		_, _, readErr = unix.Recvfrom(int(fd), make([]byte, large), 0)
		return !errors.Is(readErr, unix.EAGAIN)
	})
	if err := errors.Join(err, readErr); err != nil {
		return fmt.Errorf("read the generation: %w", err)
	}
	return nil
}

// readBuffer holds the replies to one batch: an error at most for each message, and an
// echo for each rule.
const readBuffer = 8 << 20

func (c *conn) close() error { return c.lib.CloseLasting() }

// exchange sends messages of our own in one batch and waits for their
// acknowledgements. With commit unset the kernel checks the batch and then forgets it:
// that is what a batch without end means to it (nfnetlink_rcv_batch).
func (c *conn) exchange(msgs []netlink.Message, commit bool) error {
	batch := append([]netlink.Message{batchMessage(unix.NFNL_MSG_BATCH_BEGIN)}, msgs...)
	if commit {
		batch = append(batch, batchMessage(unix.NFNL_MSG_BATCH_END))
	}
	c.sent += messagesSize(batch)
	sent, err := c.raw.SendMessages(batch)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	// The kernel has answered everything by now, so nothing is waited for.
	if err := c.raw.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	defer func() { _ = c.raw.SetReadDeadline(time.Time{}) }()
	var first error
	for acks := 0; acks < len(msgs); {
		replies, err := c.raw.Receive()
		if err != nil {
			// Each failed message is answered on its own, so there is more to read.
			if !isReply(err) {
				return fmt.Errorf("receive: %w", err)
			}
			if first == nil {
				first = err
			}
			// About the batch as a whole there is one answer, to its begin.
			if sequence(err) == sent[0].Header.Sequence {
				return first
			}
			acks++
			continue
		}
		acks += len(replies)
	}
	return first
}

// isReply reports whether an error is the kernel's answer to one message, rather than
// a failure of the connection itself.
func isReply(err error) bool { return sequence(err) != 0 }

func sequence(err error) uint32 {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return 0
	}
	return op.Sequence
}

// makeTable creates a table, its sets or both, replacing the table where the batch
// says so.
func (c *conn) makeTable(b *nft.Batch, name string, flags uint32) error {
	var msgs []netlink.Message
	add := func(m netlink.Message, err error) error {
		msgs = append(msgs, m)
		return err
	}
	var errs []error
	if b.DeleteTable {
		errs = append(errs, add(deleteTableMessage(b.Family, name)))
	}
	if b.CreateTable {
		errs = append(errs, add(tableMessage(b.Family, name, flags)))
	}
	for i, s := range b.AddSets {
		errs = append(errs, add(setMessage(b.Family, name, s, uint32(i+1))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("encode table: %w", err)
	}
	if len(msgs) == 0 {
		return nil
	}
	return c.exchange(msgs, true)
}

// step is one message of a batch: an operation on the object that is named, or on
// elements.
type step struct {
	verb string
	name string
	set  *nft.Set
	ops  []nft.ElementOp
}

func (s step) text(f model.Family) string {
	switch {
	case s.set == nil:
		return s.verb + " " + s.name
	case len(s.ops) == 1:
		return fmt.Sprintf("%s element %s { %s }", s.verb, s.set.Name, s.set.Text(f, s.ops[0].Element))
	}
	return fmt.Sprintf("%s %d elements of %s, from { %s } on", s.verb, len(s.ops), s.set.Name, s.set.Text(f, s.ops[0].Element))
}

func (s step) port() *model.ServicePort {
	if len(s.ops) == 0 {
		return nil
	}
	return s.ops[0].Port
}

// transaction collects messages for one batch.
type transaction struct {
	conn  *conn
	table *nftables.Table
	steps []step
	bytes int // of steps
}

func (c *conn) begin(f model.Family) *transaction {
	return &transaction{conn: c, table: &nftables.Table{Name: nft.TableName, Family: tableFamily(f)}}
}

// did notes that the library has taken one more message.
func (t *transaction) did(s step, size int) {
	t.steps = append(t.steps, s)
	t.bytes += size
}

// elements adds or deletes elements, so many to a message.
func (t *transaction) elements(lists []nft.SetOps, perMessage int, add bool) error {
	verb, do := "delete", t.conn.lib.SetDeleteElements
	if add {
		verb, do = "add", t.conn.lib.SetAddElements
	}
	for _, list := range lists {
		decl := nft.DeclarationOf(list.Set)
		set := &nftables.Set{
			Table: t.table, Name: decl.Name, IsMap: decl.Verdicts || decl.Data != nil,
			Interval: decl.Interval, Concatenation: decl.Interval && len(decl.Key) > 1,
		}
		for ops := range slices.Chunk(list.Ops, perMessage) {
			encoded := encodeElements(decl, ops)
			if err := do(set, encoded); err != nil {
				return fmt.Errorf("%s elements of %s: %w", verb, list.Set, err)
			}
			t.did(step{verb: verb, set: &decl, ops: ops}, elementsSize(decl.Name, encoded))
		}
	}
	return nil
}

func family(f nftables.TableFamily) model.Family {
	if f == nftables.TableFamilyIPv6 {
		return model.IPv6
	}
	return model.IPv4
}

func (t *transaction) chains(b *nft.Batch) error {
	chain := func(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: t.table} }
	for _, name := range b.RemakeBase {
		t.conn.lib.DelChain(chain(name))
		t.did(step{verb: "delete chain", name: name}, nameSize(name))
	}
	for _, c := range b.SetChains {
		if !b.NewChain(c.Name) {
			t.conn.lib.FlushChain(chain(c.Name))
			t.did(step{verb: "flush chain", name: c.Name}, nameSize(c.Name))
			continue
		}
		made := chain(c.Name)
		if c.Hook != nft.NoHook {
			made.Hooknum, made.Priority = hookNumber(c.Hook), new(nftables.ChainPriority(c.Prio))
			if made.Type = nftables.ChainTypeNAT; c.Filter {
				made.Type = nftables.ChainTypeFilter
			}
			policy := nftables.ChainPolicyAccept
			made.Policy = &policy
		}
		t.conn.lib.AddChain(made)
		t.did(step{verb: "add chain", name: c.Name}, chainSize(made))
	}
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			exprs, err := encodeRule(b.Family, r)
			if err != nil {
				return err
			}
			size, err := ruleSize(b.Family, c.Name, exprs)
			if err != nil {
				return err
			}
			t.conn.lib.AddRule(&nftables.Rule{Table: t.table, Chain: chain(c.Name), Exprs: exprs})
			t.did(step{verb: "add rule", name: c.Name + " " + r.Text(b.Family)}, size)
		}
	}
	return nil
}

func (t *transaction) deletions(b *nft.Batch) {
	for _, name := range b.DeleteChains {
		c := &nftables.Chain{Name: name, Table: t.table}
		t.conn.lib.FlushChain(c)
		t.did(step{verb: "flush chain", name: name}, nameSize(name))
	}
	for _, name := range b.DeleteChains {
		t.conn.lib.DelChain(&nftables.Chain{Name: name, Table: t.table})
		t.did(step{verb: "delete chain", name: name}, nameSize(name))
	}
	for _, name := range b.DeleteSets {
		t.conn.lib.DelSet(&nftables.Set{Name: name, Table: t.table})
		t.did(step{verb: "delete set", name: name}, nameSize(name))
	}
}

// commit sends the batch. The kernel carries out all of it or nothing.
func (t *transaction) commit() error {
	if len(t.steps) == 0 {
		return nil
	}
	if err := t.conn.growWriteBuffer(t.bytes); err != nil {
		return err
	}
	t.conn.sent += t.bytes + 2*emptyMessage // its begin and its end
	err := t.conn.lib.Flush()
	if err == nil {
		return nil
	}
	return t.conn.explain(err, family(t.table.Family), t.steps)
}

func (c *conn) growWriteBuffer(size int) error {
	have, err := c.raw.WriteBuffer()
	if err != nil {
		return fmt.Errorf("read size of netlink write buffer: %w", err)
	}
	// The kernel counts its own overhead, too (netlink_alloc_large_skb, sk_sndbuf).
	if want := size + size/4 + 1<<16; have < want {
		if err := c.raw.SetWriteBuffer(want); err != nil {
			return fmt.Errorf("enlarge netlink write buffer to %d bytes: %w", want, err)
		}
	}
	return nil
}

// explain finds out which step of the batch that was just sent failed. Messages are
// numbered one after the other, so the number of the next message tells those of the
// batch: its begin, its steps, its end.
func (c *conn) explain(err error, f model.Family, steps []step) error {
	failed := &BatchError{Err: err}
	var op *netlink.OpError
	if !errors.As(err, &op) || op.Sequence == 0 {
		return failed
	}
	failed.Message = op.Message
	next, sendErr := c.raw.Send(batchMessage(unix.NFNL_MSG_BATCH_BEGIN))
	if sendErr != nil {
		return failed
	}
	first := next.Header.Sequence - uint32(len(steps)) - 1
	if i := op.Sequence - first; i < uint32(len(steps)) {
		failed.Step = steps[i].text(f)
		failed.port = steps[i].port()
	}
	return failed
}
