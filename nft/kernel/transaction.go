package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// elementsPerMessage keeps a message below the 64 KiB that the length of a netlink
// attribute can say, with the longest keys and comments there are.
const elementsPerMessage = 150

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

// transaction collects messages for one batch, and knows what each of them is for.
type transaction struct {
	conn   *conn
	family model.Family
	msgs   messages
	steps  []step
	err    error // what could not be encoded first
}

func (c *conn) begin(f model.Family) *transaction {
	return &transaction{conn: c, family: f, msgs: c.newMessages()}
}

// add appends a message.
func (t *transaction) add(verb, name string, m netlink.Message, err error) {
	if err != nil {
		t.err = errors.Join(t.err, fmt.Errorf("encode: %s %s: %w", verb, name, err))
		return
	}
	t.msgs.add(m)
	t.steps = append(t.steps, step{verb: verb, name: name})
}

// elements adds or deletes elements, so many to a message.
func (t *transaction) elements(lists []nft.SetOps, perMessage int, add bool) {
	verb, msgType := "delete", unix.NFT_MSG_DELSETELEM
	if add {
		verb, msgType = "add", unix.NFT_MSG_NEWSETELEM
	}
	for _, list := range lists {
		set := nft.DeclarationOf(list.Set)
		for ops := range slices.Chunk(list.Ops, perMessage) {
			t.msgs.elements(msgType, t.family, &set, ops)
			t.steps = append(t.steps, step{verb: verb, set: &set, ops: ops})
		}
	}
}

func (t *transaction) chains(b *nft.Batch) {
	for _, name := range b.RemakeBase {
		m, err := deleteChainMessage(b.Family, name)
		t.add("delete chain", name, m, err)
	}
	for _, c := range b.SetChains {
		if b.NewChain(c.Name) {
			m, err := chainMessage(b.Family, nft.TableName, c)
			t.add("add chain", c.Name, m, err)
			continue
		}
		m, err := flushChainMessage(b.Family, nft.TableName, c.Name)
		t.add("flush chain", c.Name, m, err)
	}
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			m, err := ruleMessage(b.Family, nft.TableName, c.Name, r)
			t.add("add rule", c.Name+" "+r.Text(b.Family), m, err)
		}
	}
}

func (t *transaction) deletions(b *nft.Batch) {
	for _, name := range b.DeleteChains {
		m, err := flushChainMessage(b.Family, nft.TableName, name)
		t.add("flush chain", name, m, err)
	}
	for _, name := range b.DeleteChains {
		m, err := deleteChainMessage(b.Family, name)
		t.add("delete chain", name, m, err)
	}
	for _, name := range b.DeleteSets {
		m, err := deleteSetMessage(b.Family, nft.TableName, name)
		t.add("delete set", name, m, err)
	}
}

// commit sends the batch. The kernel carries out all of it or nothing.
func (t *transaction) commit() error {
	if t.err != nil {
		return t.err
	}
	if len(t.steps) == 0 {
		return nil
	}
	t.msgs.add(batchMessage(unix.NFNL_MSG_BATCH_END))
	if err := t.conn.send(&t.msgs); err != nil {
		return t.explain(err)
	}
	return nil
}

// explain finds out which step failed, if the kernel has answered.
func (t *transaction) explain(err error) error {
	var op *netlink.OpError
	if !errors.As(err, &op) || !isReply(err) {
		return err
	}
	failed := &BatchError{Message: op.Message, Err: err}
	const first = batchBegin + 1
	if i := op.Sequence - first; i < uint32(len(t.steps)) {
		failed.Step = t.steps[i].text(t.family)
		failed.port = t.steps[i].port()
	}
	return failed
}
