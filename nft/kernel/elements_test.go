package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/compile"
)

// longestElements are elements of one set, each as long as there can be.
func longestElements(s nft.Set, n int) []nft.Element {
	const longestComment = 127
	longest := strings.Repeat("x", len("external-affinity-")+len("///sctp")+2*63+15)
	zeros := func(types []nft.Type) string { return string(make([]byte, nft.Width(model.IPv6, types))) }
	e := nft.Element{
		Key: zeros(s.Key), Data: zeros(s.Data), Comment: strings.Repeat("x", longestComment),
		Verdict: nft.Verdict{Kind: nft.Jump, Chain: longest},
	}
	if s.Interval {
		e.End = e.Key
	}
	return slices.Repeat([]nft.Element{e}, n)
}

// A message never is too long with the longest elements that there can be, and it would be
// noticed.
func TestMessagesAreShortEnough(t *testing.T) {
	for _, s := range (compile.Options{Counters: true}).LayoutSets() {
		ops := longestElements(s, 4*elementsPerMessage)
		for _, size := range [...]int{elementsPerMessage, len(ops)} {
			m := messages{family: model.IPv6, table: nft.TableName}
			for some := range slices.Chunk(ops, size) {
				m.operation(batch.Op{Verb: batch.Add, Object: batch.Elements{Set: s.Name, List: some}}, 0)
			}
			if isTooLong := size > elementsPerMessage; (m.err != nil) != isTooLong {
				t.Errorf("%s: messages of %d elements: %v", s.Name, size, m.err)
			}
		}
	}
	if err := (&conn{}).try(&messages{err: errors.New("too long")}); err == nil {
		t.Error("it is sent")
	}
}

// Each message has a number, and each answer tells whose it is.
func TestTheStepThatFailedIsNamed(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	element := func(set, key string) []batch.Elements {
		return []batch.Elements{{Set: set, List: []nft.Element{{Key: key}}}}
	}
	const new1, absent, tooLong = "\x01\x02\x03\x04", "\x05\x06\x07\x08", "\x01\x02\x03\x04zzzz"
	services := nft.Chain{Name: "services", Rules: []nft.Rule{{nft.Verdict{Kind: nft.DropPacket}}}}
	for _, tt := range []struct {
		name    string
		changes batch.Batch
		want    string
	}{
		{"a rule", batch.Batch{
			SetChains: []nft.Chain{services, {Name: "reject-chain", Rules: []nft.Rule{{nft.Verdict{Kind: nft.Jump, Chain: "absent"}}}}},
		}, "add rule ip vmapd reject-chain jump absent"},
		{"a deletion", batch.Batch{
			SetChains: []nft.Chain{services}, Delete: element(nft.ClusterIPs, absent), Add: element(nft.ClusterIPs, new1),
		}, "delete element ip vmapd cluster-ips { 5.6.7.8 }"},
		{"the first of several", batch.Batch{
			Delete: element(nft.ClusterIPs, absent), Add: element(nft.ClusterIPs, tooLong),
		}, "delete element ip vmapd cluster-ips { 5.6.7.8 }"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.changes.Family = model.IPv4
			err := b.conn.carryOut(&tt.changes, 0, elementsPerMessage)
			refused, ok := errors.AsType[*BatchError](err)
			if !ok || !isReply(err) {
				t.Fatalf("got %v, want a BatchError", err)
			}
			if refused.Step != tt.want {
				t.Errorf("step %q, want %q", refused.Step, tt.want)
			}
			// No answer is left over for whatever comes next.
			if answer, err := b.conn.socket.Receive(); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("an answer of %d bytes is left: %v", len(answer), err)
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
