package kernel

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
)

func openUnowned(t testing.TB, n netns) *Backend {
	t.Helper()
	return openAs(t, Options{NetNS: n.fd(), Unowned: true})
}

// watched is a watch with its notices, one a change.
type watched struct {
	*Backend
	*Watch
	told chan struct{}
}

// watch opens a backend whose tables others may change, without running the watch.
func watch(t testing.TB, n netns) watched {
	t.Helper()
	b, told := openUnowned(t, n), make(chan struct{}, 1000)
	w, err := b.Watch(told)
	if err != nil {
		t.Fatal(err)
	}
	return watched{b, w, told}
}

// run runs the watch until the test ends.
func (w watched) run(t testing.TB) {
	t.Helper()
	testaid.Run(t, func(ctx context.Context) {
		if err := w.Run(ctx); err != nil {
			t.Errorf("the watch ended with: %v", err)
		}
	})
}

// mustNotice fails unless a change is noticed.
func (w watched) mustNotice(t testing.TB, what string) {
	t.Helper()
	select {
	case <-w.told:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s was not noticed", what)
	}
}

// mustHaveNoticed makes one foreign change, waits until it is noticed, and takes all notices until then. Nothing before
// it can be noticed later: messages keep their order.
func (w watched) mustHaveNoticed(t testing.TB, n netns, want int) {
	t.Helper()
	last := fmt.Sprintf("probe-%d", time.Now().UnixNano())
	n.nft(t, "", "add", "chain", "ip", nft.TableName, last)
	for range want + 1 {
		w.mustNotice(t, "a foreign change")
	}
	n.nft(t, "", "delete", "chain", "ip", nft.TableName, last)
	w.mustNotice(t, "the end")
	if more := len(w.told); more > 0 {
		t.Errorf("%d notices more than %d", more, want)
	}
}

func TestWhatOthersChangeIsNoticedAndRepaired(t *testing.T) {
	for _, what := range []string{
		"flush ruleset",
		"delete table ip vmapd",
		"delete table ip6 vmapd",
		"flush table ip vmapd",
		"delete element ip vmapd cluster-ips { 172.30.0.41 }",
		"delete element ip6 vmapd cluster-ips { fd00:172:30::41 }",
		"add element ip vmapd cluster-ips { 172.30.0.77 }",
		"flush map ip vmapd service-ips",
		"delete element ip vmapd service-ips { 172.30.0.41 . tcp . 80 }; add element ip vmapd service-ips { 172.30.0.41 . tcp . 80 : drop }",
		"delete element ip vmapd endpoints { 172.30.0.41 . tcp . 80 . 0 }",
		"add element ip vmapd endpoints { 172.30.0.41 . tcp . 80 . 9 : 10.0.0.9 . 1 }",
		"add rule ip vmapd services drop",
		"flush chain ip vmapd services",
		"flush table ip vmapd; delete ct timeout ip vmapd retry-tcp",
		"add chain ip vmapd strange",
		"add set ip vmapd strange { type mark; }",
		"add table ip vmapd { flags dormant; }",
		"chain ip vmapd prerouting { policy drop; }",
		"delete chain ip vmapd postrouting; add chain ip vmapd postrouting { type nat hook postrouting priority 50; }",
		"add table ip other; add rule ip vmapd services drop; add chain ip other last",
	} {
		t.Run(what, func(t *testing.T) {
			n := newNetNS(t)
			w := watch(t, n)
			w.run(t)
			s := exampleBuilder().Snapshot()
			apply(t, w.Backend, s)
			list := func() (all string) {
				for _, f := range model.Families {
					all += n.nft(t, "", "list", "table", tableWord(f), nft.TableName)
				}
				return all
			}
			before := list()
			if strings.Contains(before, "owner") {
				t.Fatalf("the table is owned:\n%s", before)
			}
			n.nft(t, what, "-f", "-")
			w.mustNotice(t, what)
			w.Resync()
			apply(t, w.Backend, s)
			mustMatch(t, n, s)
			testaid.Equal(t, "before and after the repair", objectsIn(before), objectsIn(list()))
			w.mustHaveNoticed(t, n, 0) // not the repair
		})
	}
}

// A table that is gone before anybody has noticed it is no fault of the Service that changes next: it is made anew.
func TestATableThatIsGoneIsMadeAnew(t *testing.T) {
	n := newNetNS(t)
	b := openUnowned(t, n)
	builder := exampleBuilder()
	apply(t, b, builder.Snapshot())
	n.nft(t, "", "flush", "ruleset")
	builder.SetEndpointSlice(exampleSlice("IPv4", 4))
	apply(t, b, builder.Snapshot())
	b.Resync() // the other family had no change
	apply(t, b, builder.Snapshot())
	mustMatch(t, n, builder.Snapshot())
	if got := b.Stats(model.IPv4).Rejected; got != 0 {
		t.Errorf("%d service ports are rejected, want none", got)
	}
}

func tableWord(f model.Family) string {
	if f == model.IPv6 {
		return "ip6"
	}
	return "ip"
}

func TestOtherTablesAreNotOurs(t *testing.T) {
	n := newNetNS(t)
	w := watch(t, n)
	w.run(t)
	apply(t, w.Backend, exampleBuilder().Snapshot())
	w.mustHaveNoticed(t, n, 0)
	for _, table := range []string{"ip other", "inet vmapd", "bridge vmapd", "arp vmapd", "ip vmapd-2", "ip6 vmapd6"} {
		n.nft(t, `table `+table+` { set s { type mark; elements = { 1 }; }
			chain c { accept; }
		}`, "-f", "-")
		n.nft(t, "", "delete", "element", table, "s", "{ 1 }")
		n.nft(t, "", "delete", "table", table)
	}
	w.mustHaveNoticed(t, n, 0)
}

// smallBuffer is full after a few messages.
func (w watched) smallBuffer(t *testing.T) {
	t.Helper()
	if err := w.socket.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
}

// What we change is not noticed, and takes no room.
func TestOurOwnChangesNeedNoBuffer(t *testing.T) {
	n := newNetNS(t)
	w := watch(t, n)
	w.smallBuffer(t)
	builder := exampleBuilder()
	const rounds = 100
	for i := range rounds { // and nobody reads
		builder.SetEndpointSlice(exampleSlice("IPv4", 1+i%7))
		builder.SetEndpointSlice(exampleSlice("IPv6", 1+i%5))
		if i%50 == 0 {
			w.Resync()
		}
		apply(t, w.Backend, builder.Snapshot())
	}
	if got := w.Stats(model.IPv4).Batches; got < rounds {
		t.Fatalf("only %d batches", got)
	}
	w.run(t)
	w.mustHaveNoticed(t, n, 0)
	if err := remove(w.Backend); err != nil {
		t.Fatal(err)
	}
	apply(t, w.Backend, builder.Snapshot())
	w.mustHaveNoticed(t, n, 0)
}

func TestAnOverrunCountsAsAChange(t *testing.T) {
	n := newNetNS(t)
	w := watch(t, n)
	w.smallBuffer(t)
	apply(t, w.Backend, exampleBuilder().Snapshot())
	var text strings.Builder
	text.WriteString("add table ip other\n")
	for i := range 300 {
		fmt.Fprintf(&text, "add chain ip other chain-%d\n", i)
	}
	n.nft(t, text.String(), "-f", "-")
	n.nft(t, "", "delete", "table", "ip", nft.TableName) // this message is lost
	w.run(t)
	w.mustNotice(t, "the overrun")
	w.Resync()
	apply(t, w.Backend, exampleBuilder().Snapshot())
	// Once the buffer is empty, all is well again.
	w.mustHaveNoticed(t, n, 0)
}

func TestFlushRulesetLeavesOwnedTablesAsTheyAre(t *testing.T) {
	n := newNetNS(t)
	b := open(t, n)
	if !b.Owned() {
		t.Skip("this kernel lacks table flags owner and persist (Linux 6.9)")
	}
	apply(t, b, exampleBuilder().Snapshot())
	before := n.nft(t, "", "-a", "list", "ruleset")
	n.nft(t, "add table ip other", "-f", "-")
	n.nft(t, "", "flush", "ruleset")
	for _, what := range []string{
		"delete table ip vmapd",
		"delete table ip6 vmapd",
		"delete element ip vmapd cluster-ips { 172.30.0.41 }",
		"add rule ip vmapd services drop",
		"flush chain ip vmapd services",
	} {
		if out, err := n.tryNFT(what, "-f", "-"); err == nil {
			t.Errorf("%q succeeded: %s", what, out)
		}
	}
	testaid.Equal(t, "before and after nft flush ruleset and others, with handles", before, n.nft(t, "", "-a", "list", "ruleset"))
}

// A table that nft made of a listing has no owner, and gets none as long as it lasts: it is compared and repaired as on
// kernels that know no owners, and no packet meets a table without rules.
func TestATableWithoutAnOwnerIsKept(t *testing.T) {
	n := newNetNS(t)
	s := exampleBuilder().Snapshot()
	n.nft(t, text(s)+"add element ip vmapd cluster-ips { 172.30.0.77 }\n", "-f", "-")
	handle := regexp.MustCompile(`map service-ips \{ # handle \d+`)
	before := handle.FindString(n.nft(t, "", "-a", "list", "table", "ip", "vmapd"))
	b := openAs(t, Options{NetNS: n.fd()})
	if b.Owned() {
		t.Error("the table has an owner")
	}
	apply(t, b, s)
	mustMatch(t, n, s)
	if after := handle.FindString(n.nft(t, "", "-a", "list", "table", "ip", "vmapd")); after != before || after == "" {
		t.Errorf("the map was %q, and is %q", before, after)
	}
}
