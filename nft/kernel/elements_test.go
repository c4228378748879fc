package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// reference returns the messages that google/nftables makes of what is queued.
func reference(t *testing.T, queue func(lib *nftables.Conn) error) []netlink.Message {
	t.Helper()
	var sent []netlink.Message
	lib, err := nftables.New(nftables.WithTestDial(func(list []netlink.Message) ([]netlink.Message, error) {
		sent = append(sent, list...)
		return nil, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := queue(lib); err != nil {
		t.Fatal(err)
	}
	_ = lib.Flush() // nobody answers
	// nft reads flags in the machine's byte order; the library writes them as little-endian.
	flags := []byte{byte(userdata.NFTNL_UDATA_SET_ELEM_FLAGS), 4}
	for i := range sent {
		sent[i].Data = bytes.ReplaceAll(sent[i].Data,
			binary.LittleEndian.AppendUint32(flags[:2:2], userdata.NFTNL_UDATA_SET_ELEM_F_INTERVAL_OPEN),
			binary.NativeEndian.AppendUint32(flags[:2:2], userdata.NFTNL_UDATA_SET_ELEM_F_INTERVAL_OPEN))
	}
	return sent
}

// split takes a batch apart.
func split(t *testing.T, m messages) []netlink.Message {
	t.Helper()
	if m.err != nil {
		t.Fatal(m.err)
	}
	var list []netlink.Message
	for b := m.b; len(b) > 0; {
		var one netlink.Message
		if err := one.UnmarshalBinary(b); err != nil {
			t.Fatalf("message %d: %v", len(list)+1, err)
		}
		list = append(list, one)
		b = b[one.Header.Length:]
	}
	return list
}

// sameMessages compares all but the numbers of messages and who sends them.
func sameMessages(t *testing.T, want, got []netlink.Message) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := want[i].Header, got[i].Header
		if w.Type != g.Type || w.Flags != g.Flags || w.Length != g.Length {
			t.Errorf("message %d: header %+v, want %+v", i, g, w)
		}
		if !bytes.Equal(want[i].Data, got[i].Data) {
			t.Fatalf("message %d (-want +got):\n%s", i, cmp.Diff(want[i].Data, got[i].Data))
		}
		if g.Sequence != uint32(i)+batchBegin {
			t.Errorf("message %d has number %d", i, g.Sequence)
		}
	}
}

// libElements are elements of one set for google/nftables.
func libElements(s nft.Set, ops []nft.ElementOp) []nftables.SetElement {
	var list []nftables.SetElement
	for _, op := range ops {
		e := nftables.SetElement{Key: []byte(op.Key), Comment: op.Comment}
		switch {
		case s.Verdicts:
			e.VerdictData = &expr.Verdict{Kind: verdictKinds[op.Verdict.Kind], Chain: op.Verdict.Chain}
		case s.Data != nil:
			e.Val = []byte(op.Data)
		}
		if s.Counter {
			e.Counter = &expr.Counter{}
		}
		isRange := s.Interval && len(s.Key) == 1
		e.IntervalOpen = isRange && op.End == ""
		if s.Interval && !isRange {
			e.KeyEnd = []byte(op.End)
		}
		list = append(list, e)
		if isRange && op.End != "" {
			list = append(list, nftables.SetElement{Key: []byte(op.End), IntervalEnd: true})
		}
	}
	return list
}

const longestComment = 127

// randomElements are elements of one set: also the longest ones that there can be.
func randomElements(r *rand.Rand, f model.Family, s nft.Set, n int) []nft.ElementOp {
	raw := func(types []nft.Type) string {
		b := make([]byte, nft.Width(f, types))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	}
	text := func(longest int) string {
		return strings.Repeat("x", []int{0, 1 + r.IntN(longest), longest}[r.IntN(3)])
	}
	ops := make([]nft.ElementOp, n)
	for i := range ops {
		e := &ops[i].Element
		e.Key, e.Comment = raw(s.Key), text(longestComment)
		if s.Interval && r.IntN(2) == 0 {
			e.End = raw(s.Key)
		}
		if s.Verdicts {
			e.Verdict.Kind = nft.NoVerdict + nft.VerdictKind(r.IntN(int(nft.Goto)+1))
			if e.Verdict.Kind == nft.Jump || e.Verdict.Kind == nft.Goto {
				e.Verdict.Chain = "c" + text(nameLength-1)
			}
		}
		if s.Data != nil {
			e.Data = raw(s.Data)
		}
	}
	return ops
}

// nameLength is as long as the name of an object may be (linux/netfilter/nf_tables.h:
// NFT_NAME_MAXLEN, with its final zero).
const nameLength = 255

func TestElementsAreEncodedAsByTheLibrary(t *testing.T) {
	sets := append(compile.Options{Counters: true}.LayoutSets(),
		nft.DeclarationOf("own-endpoints-ns1/svc1/tcp/http"),
		nft.DeclarationOf("affinity-ns1/svc1/tcp/http"),
		nft.DeclarationOf("local-affinity-ns1/svc1/tcp/"))
	for _, f := range model.Families {
		for i, s := range sets {
			t.Run(fmt.Sprintf("%v/%s", f, strings.ReplaceAll(s.Name, "/", "_")), func(t *testing.T) {
				if s.Key == nil {
					t.Fatal("no set of ours")
				}
				r := rand.New(rand.NewPCG(uint64(f), uint64(i)))
				del, add := randomElements(r, f, s, 300), randomElements(r, f, s, 500)
				const perMessage = 70
				set := &nftables.Set{
					Table: &nftables.Table{Name: nft.TableName, Family: nftables.TableFamily(nfproto(f))}, Name: s.Name,
					IsMap: s.Verdicts || s.Data != nil, Interval: s.Interval, Concatenation: s.Interval && len(s.Key) > 1,
				}
				want := reference(t, func(lib *nftables.Conn) error {
					var errs []error
					for ops := range slices.Chunk(del, perMessage) {
						errs = append(errs, lib.SetDeleteElements(set, libElements(s, ops)))
					}
					for ops := range slices.Chunk(add, perMessage) {
						errs = append(errs, lib.SetAddElements(set, libElements(s, ops)))
					}
					return errors.Join(errs...)
				})
				tr := testTransaction(f)
				tr.elements([]batch.SetOps{{Set: s.Name, Ops: del}}, perMessage, false)
				tr.elements([]batch.SetOps{{Set: s.Name, Ops: add}}, perMessage, true)
				if got, want := len(tr.steps), (len(del)+perMessage-1)/perMessage+(len(add)+perMessage-1)/perMessage; got != want {
					t.Errorf("%d steps, want %d", got, want)
				}
				tr.msgs.batch(unix.NFNL_MSG_BATCH_END)
				sameMessages(t, want, split(t, tr.msgs))
			})
		}
	}
}

// testTransaction is one that is not sent.
func testTransaction(f model.Family) *transaction {
	tr := &transaction{msgs: messages{family: f, table: nft.TableName}}
	tr.msgs.batch(unix.NFNL_MSG_BATCH_BEGIN)
	return tr
}

// A message never is too long with the longest elements that there can be, and it would be
// noticed.
func TestMessagesAreShortEnough(t *testing.T) {
	longest := strings.Repeat("x", len("external-affinity-")+len("///sctp")+2*63+15)
	for _, s := range (compile.Options{Counters: true}).LayoutSets() {
		ops := randomElements(rand.New(rand.NewPCG(1, 1)), model.IPv6, s, 4*elementsPerMessage)
		for i := range ops {
			ops[i].Verdict, ops[i].Comment = nft.Verdict{Kind: nft.Jump, Chain: longest}, strings.Repeat("x", longestComment)
		}
		tr := testTransaction(model.IPv6)
		tr.elements([]batch.SetOps{{Set: s.Name, Ops: ops}}, elementsPerMessage, true)
		if tr.msgs.err != nil {
			t.Errorf("%s: %v", s.Name, tr.msgs.err)
		}
		tr = testTransaction(model.IPv6)
		tr.elements([]batch.SetOps{{Set: s.Name, Ops: ops}}, len(ops), true)
		if tr.msgs.err == nil {
			t.Errorf("%s: no error for a message of %d bytes", s.Name, len(tr.msgs.b))
		}
	}
	if err := (&conn{}).try(&messages{err: errors.New("too long")}); err == nil {
		t.Error("it is sent")
	}
}

func TestChainsAreEncodedAsByTheLibrary(t *testing.T) {
	for _, f := range model.Families {
		table := &nftables.Table{Name: nft.TableName, Family: nftables.TableFamily(nfproto(f))}
		accept := nftables.ChainPolicyAccept
		want := reference(t, func(lib *nftables.Conn) error {
			lib.DelChain(&nftables.Chain{Table: table, Name: "postrouting"})
			lib.AddChain(&nftables.Chain{Table: table, Name: "regular"})
			lib.AddChain(&nftables.Chain{
				Table: table, Name: "postrouting", Hooknum: nftables.ChainHookPostrouting,
				Priority: nftables.ChainPriorityRef(-7), Type: nftables.ChainTypeNAT, Policy: &accept,
			})
			lib.AddChain(&nftables.Chain{
				Table: table, Name: "filter", Hooknum: nftables.ChainHookForward,
				Priority: nftables.ChainPriorityRef(3), Type: nftables.ChainTypeFilter, Policy: &accept,
			})
			lib.FlushChain(&nftables.Chain{Table: table, Name: "gone"})
			lib.DelChain(&nftables.Chain{Table: table, Name: "gone"})
			lib.DelSet(&nftables.Set{Table: table, Name: "gone-too"})
			return nil
		})
		got := messages{family: f, table: nft.TableName}
		got.batch(unix.NFNL_MSG_BATCH_BEGIN)
		got.deleteChain("postrouting")
		got.addChain(nft.Chain{Name: "regular"})
		got.addChain(nft.Chain{Name: "postrouting", Hook: nft.Postrouting, Prio: -7})
		got.addChain(nft.Chain{Name: "filter", Hook: nft.Forward, Prio: 3, Filter: true})
		got.flushChain("gone")
		got.deleteChain("gone")
		got.deleteSet("gone-too")
		got.batch(unix.NFNL_MSG_BATCH_END)
		sameMessages(t, want, split(t, got))
	}
}

// Each message has a number, and each answer tells whose it is.
func TestTheStepThatFailedIsNamed(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	element := func(set, key string) []batch.SetOps {
		return []batch.SetOps{{Set: set, Ops: []nft.ElementOp{{Element: nft.Element{Key: key}}}}}
	}
	const there, new1, absent, tooLong = "\xac\x1e\x00\x29", "\x01\x02\x03\x04", "\x05\x06\x07\x08", "\x01\x02\x03\x04zzzz"
	services := nft.Chain{Name: "services", Rules: []nft.Rule{{nft.Verdict{Kind: nft.DropPacket}}}}
	for _, tt := range []struct {
		name    string
		changes batch.Batch
		want    string
	}{
		{"the first", batch.Batch{RemakeBase: []string{"absent"}, Add: element(nft.ClusterIPs, new1)}, "delete chain absent"},
		{"a chain", batch.Batch{
			SetChains: []nft.Chain{services, {Name: "absent"}}, Add: element(nft.ClusterIPs, new1),
		}, "flush chain absent"},
		{"a rule", batch.Batch{
			SetChains: []nft.Chain{services, {Name: "reject-chain", Rules: []nft.Rule{{nft.Verdict{Kind: nft.Jump, Chain: "absent"}}}}},
		}, "add rule reject-chain jump absent"},
		{"a deletion", batch.Batch{
			SetChains: []nft.Chain{services}, Delete: element(nft.ClusterIPs, absent), Add: element(nft.ClusterIPs, new1),
		}, "delete element cluster-ips { 5.6.7.8 }"},
		{"the last", batch.Batch{
			SetChains: []nft.Chain{services}, Delete: element(nft.ClusterIPs, there), Add: element(nft.ClusterIPs, tooLong),
		}, "add element cluster-ips { 1.2.3.4 }"},
		{"the first of several", batch.Batch{
			Delete: element(nft.ClusterIPs, absent), Add: element(nft.ClusterIPs, tooLong),
		}, "delete element cluster-ips { 5.6.7.8 }"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.changes.Family = model.IPv4
			err := b.conn.commitPiece(&tt.changes, 0, elementsPerMessage)
			refused, ok := errors.AsType[*BatchError](err)
			if !ok || !isReply(err) {
				t.Fatalf("got %v, want a BatchError", err)
			}
			if refused.Step != tt.want {
				t.Errorf("step %q, want %q", refused.Step, tt.want)
			}
			// No answer is left over for whatever comes next.
			if n, err := b.conn.socket.Receive(b.conn.answer); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("an answer of %d bytes is left: %v", n, err)
			}
		})
	}
	b.Resync()
	apply(t, b, s)
	mustMatch(t, n, s)
	if got := b.Stats(model.IPv4).Batches; got != 1 {
		t.Errorf("%d batches, want the first alone", got)
	}
}
