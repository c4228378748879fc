package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

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
	ops  []nft.ElementOp
}

func (s step) text(f model.Family) string {
	switch {
	case s.set == nil:
		return s.verb + " " + s.name
	case len(s.ops) == 1:
		return fmt.Sprintf("%s element %s { %s }", s.verb, s.set.Name, s.set.Text(f, s.ops[0].Element))
	}
	first := s.set.Text(f, s.ops[0].Element)
	return fmt.Sprintf("%s %d elements of %s, from { %s } on", s.verb, len(s.ops), s.set.Name, first)
}

func (s step) port() *model.ServicePort {
	if len(s.ops) == 0 {
		return nil
	}
	return s.ops[0].Port
}

// transaction collects the messages of one batch, and describes each of them.
type transaction struct {
	conn  *conn
	msgs  messages
	steps []step
}

func (c *conn) begin(f model.Family) *transaction {
	return &transaction{conn: c, msgs: c.newBatch(f, nft.TableName)}
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

// table makes or replaces the table, and makes sets and flowtables.
func (t *transaction) table(b *batch.Batch, flags uint32) {
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

func (t *transaction) chains(b *batch.Batch) {
	for _, name := range b.RemakeBase {
		t.step("delete chain", name)
		t.msgs.deleteChain(name)
	}
	for _, c := range b.SetChains {
		if b.NewChain(c.Name) {
			t.step("add chain", c.Name)
			t.msgs.addChain(c)
		}
		if !b.CreateTable { // a new chain may be one that a refused service port has kept: see send
			t.step("flush chain", c.Name)
			t.msgs.flushChain(c.Name)
		}
	}
	t.timeouts(b)
	for _, c := range b.SetChains {
		for _, r := range c.Rules {
			t.step("add rule", c.Name+" "+r.Text(b.Family))
			t.msgs.addRule(c.Name, r)
		}
	}
}

// timeouts makes timeout policies. One that is made anew must have no rules, also in chains that are deleted later.
func (t *transaction) timeouts(b *batch.Batch) {
	if len(b.DropTimeouts) > 0 {
		t.flush(b.DeleteChains)
	}
	for _, name := range b.DropTimeouts {
		t.step("delete ct timeout", name)
		t.msgs.deleteTimeout(name)
	}
	for _, timeout := range b.AddTimeouts {
		t.step("add ct timeout", timeout.Name)
		t.msgs.addTimeout(timeout)
	}
}

func (t *transaction) flush(chains []string) {
	for _, name := range chains {
		t.step("flush chain", name)
		t.msgs.flushChain(name)
	}
}

func (t *transaction) deletions(b *batch.Batch) {
	t.flush(b.DeleteChains)
	for _, name := range b.DeleteChains {
		t.step("delete chain", name)
		t.msgs.deleteChain(name)
	}
	for _, name := range b.DeleteSets {
		t.step("delete set", name)
		t.msgs.deleteSet(name)
	}
	for _, name := range b.DeleteFlowtables {
		t.step("delete flowtable", name)
		t.msgs.deleteFlowtable(name)
	}
}

// commit sends the batch. The kernel carries out all of it or nothing.
func (t *transaction) commit() error {
	if len(t.steps) == 0 {
		return nil
	}
	if err := t.conn.commit(&t.msgs); err != nil {
		return t.explain(err)
	}
	return nil
}

// explain finds out which step failed, if the kernel has answered.
func (t *transaction) explain(err error) error {
	op, ok := errors.AsType[*netlink.OpError](err)
	if !ok || !isReply(err) {
		return err
	}
	failed := &BatchError{Message: op.Message, Err: err}
	const first = batchBegin + 1
	if i := op.Sequence - first; i < uint32(len(t.steps)) {
		failed.Step = t.steps[i].text(t.msgs.family)
		failed.port = t.steps[i].port()
	}
	return failed
}

// pieceSize is the default of Options.PieceSize. It bounds the time that the kernel holds its lock, and our memory.
const pieceSize = 8_000

// send carries out a batch. It returns the number of operations.
func (b *Backend) send(st *familyState, changes *batch.Batch) (operations int, err error) {
	defer func() { b.conn.buffer = nil }() // the memory that pieces of a large batch share
	for piece := range changes.Pieces(b.piece) {
		operations += piece.Len()
		err := b.sendOthers(st, piece)
		if errors.Is(err, unix.EPERM) {
			return operations, fmt.Errorf("table %s is %w", nft.TableName, ErrOwned)
		}
		if err != nil {
			return operations, err
		}
		if piece.CreateTable {
			st.owned = st.flags != 0
		}
	}
	t := b.conn.begin(changes.Family)
	t.deletions(changes)
	err = t.commit()
	if st.refusal != nil && (err == nil || errors.Is(err, unix.EBUSY)) {
		// A refused service port may still use what is to be deleted: the next reading deletes it.
		return operations, st.refusal.err(changes.Family)
	}
	return operations, err
}

// sendOthers commits a batch without the service ports that were refused. If another one makes
// it fail, it notes that one and commits the rest.
func (b *Backend) sendOthers(st *familyState, changes *batch.Batch) error {
	if st.refusal != nil {
		changes.Without(st.refusal.ports)
	}
	for {
		err := b.conn.commitPiece(changes, st.flags, elementsPerMessage)
		var failed *BatchError
		if err == nil || !isRefusal(err, &failed) || st.refusal.number() == maxRefused {
			return err
		}
		// A message holds many elements. One element each names the object.
		if err = b.conn.commitPiece(changes, st.flags, 1); err == nil {
			return nil
		}
		if !isRefusal(err, &failed) {
			return err
		}
		st.refusal = st.refusal.with(failed.port.Name, err)
		changes.Without(st.refusal.ports)
	}
}

// isRefusal reports whether a batch failed because of an element of one service port. An error that passes has nothing
// to do with that: the whole batch is tried again. EBUSY is one of these.
func isRefusal(err error, failed **BatchError) bool {
	return !isTransient(err) && !errors.Is(err, unix.EBUSY) && errors.As(err, failed) && (*failed).port != nil
}

func (c *conn) commitPiece(b *batch.Batch, flags uint32, perMessage int) error {
	t := c.begin(b.Family)
	t.table(b, flags)
	t.chains(b)
	t.elements(b.Delete, perMessage, false)
	t.elements(b.Add, perMessage, true)
	return t.commit()
}

const (
	// maxRefused bounds the service ports that are left out of one batch, one by one.
	maxRefused = 10
	// tryAgainAfter is when refused service ports are tried again although other Services change all the time.
	tryAgainAfter = 30 * time.Second
)

// refusal is that of single service ports by the kernel. What it has of them is not known: before they are tried again,
// the table is read. Other changes do without.
type refusal struct {
	ports map[model.ServicePortName]bool
	errs  []error
	since time.Time
	s     *model.FamilySnapshot // of the last Apply
}

// with returns a refusal with another service port. It may be called on nil.
func (r *refusal) with(name model.ServicePortName, err error) *refusal {
	if r == nil {
		r = &refusal{ports: map[model.ServicePortName]bool{}, since: time.Now()}
	}
	r.ports[name] = true
	r.errs = append(r.errs, err)
	return r
}

// number returns the number of service ports. It may be called on nil.
func (r *refusal) number() int {
	if r == nil {
		return 0
	}
	return len(r.ports)
}

func (r *refusal) err(f model.Family) error {
	return &model.RefusedError{Family: f, Ports: r.ports, Err: errors.Join(r.errs...)}
}

// mustBeTried reports whether the refused service ports are to be tried again: they have changed, nothing else has, as
// when the loop tries again, or a time has passed. It may be called on nil.
func (r *refusal) mustBeTried(s *model.FamilySnapshot) bool {
	if r == nil {
		return false
	}
	if s == r.s || time.Since(r.since) >= tryAgainAfter {
		return true
	}
	for name := range r.ports {
		before, _ := r.s.ServicePort(name)
		if now, _ := s.ServicePort(name); now != before {
			return true
		}
	}
	return false
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

	port *model.ServicePort
}

func (e *BatchError) Error() string {
	s := "batch refused"
	if e.Step != "" {
		s += ": " + e.Step
	}
	if e.port != nil {
		s += fmt.Sprintf(" (Service %v)", e.port.Name)
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
