package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// elementsPerMessage keeps a message below the 64 KiB that the length of a netlink
// attribute can say, with the longest keys and comments there are.
const elementsPerMessage = 150

// step is one message of a batch: an operation on the object that is named, or on elements.
type step struct {
	verb string
	name string
	set  *nft.Set
	ops  []nft.Element
}

func (s step) text(f model.Family) string {
	switch {
	case s.set == nil:
		return s.verb + " " + s.name
	case len(s.ops) == 1:
		return fmt.Sprintf("%s element %s { %s }", s.verb, s.set.Name, s.set.Text(f, s.ops[0]))
	}
	return fmt.Sprintf("%s %d elements of %s, from { %s } on", s.verb, len(s.ops), s.set.Name, s.set.Text(f, s.ops[0]))
}

// transaction collects the messages of one batch, and describes each of them.
type transaction struct {
	conn  *conn
	msgs  messages
	steps []step
}

// step describes the next message.
func (t *transaction) step(verb, name string) {
	t.steps = append(t.steps, step{verb: verb, name: name})
}

// elements adds or deletes elements, so many to a message.
func (t *transaction) elements(lists []batch.SetOps, perMessage int, add bool) {
	verb, msgType := "delete", uint16(unix.NFT_MSG_DELSETELEM)
	if add {
		verb, msgType = "add", unix.NFT_MSG_NEWSETELEM
	}
	for _, list := range lists {
		set := nft.DeclarationOf(list.Set)
		for ops := range slices.Chunk(list.Ops, perMessage) {
			t.msgs.elements(msgType, &set, ops)
			t.steps = append(t.steps, step{verb: verb, set: &set, ops: ops})
		}
	}
}

// objects makes or replaces the table, and makes sets and flowtables.
func (t *transaction) objects(b *batch.Batch, flags uint32) {
	if b.DeleteTable {
		t.step("delete table", nft.TableName)
		t.msgs.deleteTable()
	}
	if b.CreateTable {
		t.step("add table", nft.TableName)
		t.msgs.addTable(flags)
	}
	for i, s := range b.AddSets {
		t.step("add set", s.Name)
		t.msgs.addSet(s, uint32(i+1))
	}
	for _, f := range b.AddFlowtables {
		t.step("add flowtable", f.Name)
		t.msgs.addFlowtable(f, nil)
	}
}

// chains makes chains, and timeout policies before the rules that use them.
func (t *transaction) chains(b *batch.Batch) {
	t.each("delete chain", b.RemakeBase, t.msgs.deleteChain)
	for _, c := range b.SetChains {
		if b.NewChain(c.Name) {
			t.step("add chain", c.Name)
			t.msgs.addChain(c)
		} else {
			t.step("flush chain", c.Name)
			t.msgs.flushChain(c.Name)
		}
	}
	for _, timeout := range b.AddTimeouts {
		t.step("add ct timeout", timeout.Name)
		t.msgs.addTimeout(timeout)
	}
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			t.step("add rule", c.Name+" "+r.Text(b.Family))
			t.msgs.addRule(c.Name, r)
		}
	}
}

func (t *transaction) deletions(b *batch.Batch) {
	t.each("flush chain", b.DeleteChains, t.msgs.flushChain)
	t.each("delete chain", b.DeleteChains, t.msgs.deleteChain)
	t.each("delete set", b.DeleteSets, t.msgs.deleteSet)
	t.each("delete flowtable", b.DeleteFlowtables, t.msgs.deleteFlowtable)
	t.each("delete ct timeout", b.DeleteTimeouts, t.msgs.deleteTimeout)
}

// each adds a message about each of some objects.
func (t *transaction) each(verb string, names []string, message func(name string)) {
	for _, name := range names {
		t.step(verb, name)
		message(name)
	}
}

// commit sends the messages. The kernel carries out all of them or none, and answers to each that it refuses.
func (t *transaction) commit() error {
	err := t.conn.commit(&t.msgs)
	if err == nil || !isReply(err) {
		return err
	}
	op, _ := errors.AsType[*netlink.OpError](err)
	failed := &BatchError{Message: op.Message, Err: err}
	const first = batchBegin + 1
	for _, sequence := range t.conn.refused {
		i := int(sequence) - first
		if i < 0 || i >= len(t.steps) {
			continue
		}
		if failed.Step == "" {
			failed.Step = t.steps[i].text(t.msgs.family)
		}
		if t.steps[i].set != nil {
			failed.steps = append(failed.steps, t.steps[i])
		}
	}
	return failed
}

// pieceSize is the default of Options.PieceSize. It bounds the time that the kernel holds its lock, and our memory.
const pieceSize = 8_000

// send carries out a batch, and returns the number of operations that were.
func (b *Backend) send(st *familyState, changes *batch.Batch) (operations int, err error) {
	for t := range changes.Transactions() {
		err := b.conn.carryOut(t, st.flags, elementsPerMessage)
		if isRefusal(err) { // a message holds many elements: one element each names them
			err = b.conn.carryOut(t, st.flags, 1)
		}
		if errors.Is(err, unix.EPERM) {
			return operations, fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
		}
		if err != nil {
			return operations, err
		}
		operations += t.Len()
		if t.CreateTable {
			st.owned = st.flags != 0
		}
	}
	return operations, nil
}

// carryOut commits a batch as one transaction.
func (c *conn) carryOut(b *batch.Batch, flags uint32, perMessage int) error {
	t := &transaction{conn: c, msgs: c.newBatch(b.Family, nft.TableName)}
	t.objects(b, flags)
	t.chains(b)
	t.elements(b.Delete, perMessage, false)
	t.elements(b.Add, perMessage, true)
	t.deletions(b)
	return t.commit()
}

// isRefusal reports whether a batch failed because of elements, not of an error that passes, or because something is
// missing in a table that others changed.
func isRefusal(err error) bool {
	failed, ok := errors.AsType[*BatchError](err)
	return ok && len(failed.steps) > 0 && !isTransient(err) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOENT)
}

// ErrOwned indicates that another process of ours still owns the tables, as happens
// while one instance replaces another. It passes once that one has ended.
var ErrOwned error = ownedError{}

type ownedError struct{}

func (ownedError) Error() string { return "owned by another process; waiting for it to end" }

// Waiting asks the caller of Apply to try again soon, see sync/reconcile.
func (ownedError) Waiting() {}

// ErrNotPermitted indicates that this process must not administer the network.
var ErrNotPermitted = nfnl.ErrNotPermitted

// BatchError is a batch that the kernel refused. Nothing of it was carried out.
type BatchError struct {
	Step    string // the operation that failed; empty if the kernel did not say
	Message string // the kernel's own words, often empty
	Err     error

	steps []step // about elements, that failed
}

func (e *BatchError) Error() string {
	s := "batch refused"
	if e.Step != "" {
		s += ": " + e.Step
	}
	reason := e.Err
	if op, ok := errors.AsType[*netlink.OpError](e.Err); ok {
		reason = op.Err
	}
	s += ": " + reason.Error()
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

func (e *BatchError) Unwrap() error { return e.Err }

// isTransient reports whether the same messages may work at another time: there was no memory, no room for a
// message or its answer, or the kernel was interrupted.
func isTransient(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR)
}

// isLack reports whether an error of a probe says that the kernel lacks something. EBUSY does: Linux before 4.18 allows
// one NAT hook only, of nftables or of iptables.
func isLack(err error) bool { return isReply(err) && !isTransient(err) }

// UnsupportedError is a feature that this kernel lacks.
type UnsupportedError struct {
	Feature string // the missing feature, like "nft_fib (CONFIG_NFT_FIB_IPV4)"
	Since   string // the Linux version that brought it
	Family  string
	Without string // the consequence; "": other backends must be used
	Err     error
}

func (e *UnsupportedError) Error() string {
	without := cmp.Or(e.Without, "--backend=ipvs and --backend=iptables do without")
	const text = "this kernel lacks %s for %s (in Linux since %s, and in the configuration of most distributions); %s: %v"
	return fmt.Sprintf(text, e.Feature, e.Family, e.Since, without, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }
