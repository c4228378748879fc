package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// elementsPerMessage keeps a message below the 64 KiB that the length of a netlink
// attribute can say, with the longest keys and comments there are.
const elementsPerMessage = 150

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

// prepared yields the same batches, each made while the kernel carries out the one before.
func prepared(batches iter.Seq[*batch.Batch]) iter.Seq[*batch.Batch] {
	return func(yield func(*batch.Batch) bool) {
		next, stop := make(chan *batch.Batch), make(chan struct{})
		go func() {
			defer close(next)
			for b := range batches {
				select {
				case next <- b:
				case <-stop:
					return
				}
			}
		}()
		isWanted := true
		for b := range next { // to its end: the table is free then
			if isWanted && !yield(b) {
				isWanted = false
				close(stop)
			}
		}
	}
}

// carryOut commits a batch as one transaction. The kernel carries out all of it or nothing.
func (c *conn) carryOut(b *batch.Batch, flags uint32, perMessage int) error {
	m, ops := c.encode(b, nft.TableName, flags, perMessage)
	return c.explain(c.commit(&m), b.Family, ops)
}

func (c *conn) encode(b *batch.Batch, table string, flags uint32, perMessage int) (messages, []batch.Op) {
	m, ops := c.newBatch(b.Family, table), slices.Collect(b.Ops(perMessage))
	for _, op := range ops {
		m.operation(op, flags)
	}
	return m, ops
}

// explain returns the error of a batch with the operations that the kernel refused: it answers to each of these.
func (c *conn) explain(err error, f model.Family, ops []batch.Op) error {
	if err == nil || !isReply(err) {
		return err
	}
	failed := &BatchError{Err: err}
	const first = batchBegin + 1
	for _, sequence := range c.refused {
		i := int(sequence) - first
		if i < 0 || i >= len(ops) {
			continue
		}
		if failed.Step == "" {
			failed.Step = ops[i].Text(f)
		}
		if elements, ok := ops[i].Object.(batch.Elements); ok {
			failed.elements = append(failed.elements, elements)
		}
	}
	return failed
}

// operation appends the message of an operation. flags are those of a new table.
func (m *messages) operation(op batch.Op, flags uint32) {
	switch o := op.Object.(type) {
	case nil:
		if op.Verb == batch.Delete {
			m.deleteTable()
		} else {
			m.addTable(flags)
		}
	case nft.Set:
		if op.Verb == batch.Delete {
			m.remove(unix.NFT_MSG_DELSET, unix.NFTA_SET_NAME, o.Name)
		} else {
			m.addSet(o)
		}
	case nft.Flowtable:
		if op.Verb == batch.Delete {
			m.remove(unix.NFT_MSG_DELFLOWTABLE, nftables.NFTA_FLOWTABLE_NAME, o.Name)
		} else {
			m.addFlowtable(o.Name)
		}
	case nft.Timeout:
		if op.Verb == batch.Delete {
			m.end(m.timeoutObject(unix.NFT_MSG_DELOBJ, 0, o.Name))
		} else {
			m.addTimeout(o)
		}
	case nft.Chain:
		switch op.Verb {
		case batch.Delete:
			m.remove(unix.NFT_MSG_DELCHAIN, unix.NFTA_CHAIN_NAME, o.Name)
		case batch.Flush:
			m.remove(unix.NFT_MSG_DELRULE, unix.NFTA_RULE_CHAIN, o.Name)
		case batch.Add:
			m.addChain(o)
		}
	case batch.Rule:
		m.addRule(o.Chain, o.Rule)
	case batch.Elements:
		msgType := uint16(unix.NFT_MSG_NEWSETELEM)
		if op.Verb == batch.Delete {
			msgType = unix.NFT_MSG_DELSETELEM
		}
		set := nft.DeclarationOf(o.Set)
		m.elements(msgType, &set, o.List)
	}
}

// isRefusal reports whether a batch failed because of elements, not of an error that passes, or because something is
// missing in a table that others changed.
func isRefusal(err error) bool {
	failed, ok := errors.AsType[*BatchError](err)
	isPassing := isTransient(err) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT)
	return ok && len(failed.elements) > 0 && !isPassing
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
	Step string // the operation that failed; empty if the kernel did not say
	Err  error

	elements []batch.Elements // that failed
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("batch refused: %s: %v", cmp.Or(e.Step, "all of it"), e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// isTransient reports whether the same messages may work at another time: there was no memory, no room for a
// message or its answer, or the kernel was interrupted.
func isTransient(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR)
}

// UnsupportedError is a feature that this kernel lacks.
type UnsupportedError struct {
	Feature string // the missing feature, like "nft_fib (CONFIG_NFT_FIB_IPV4)"
	Family  string
	Without string // the consequence; "": other backends must be used
	Err     error
}

func (e *UnsupportedError) Error() string {
	without := cmp.Or(e.Without, "--backend=ipvs and --backend=iptables do without")
	const text = "this kernel lacks %s for %s (in the configuration of most distributions); %s: %v"
	return fmt.Sprintf(text, e.Feature, e.Family, without, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }
