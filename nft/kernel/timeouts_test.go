package kernel

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// settings is the part of net/netfilter that a test sets.
type settings map[string]uint32

func (s settings) get(name string) (uint32, bool) {
	seconds, ok := s[name]
	return seconds, ok
}

// policiesOf reads the timeout policies of the IPv4 table: seconds by "policy state".
func policiesOf(t *testing.T, kernel dialer) map[string]uint32 {
	t.Helper()
	c, err := kernel.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	states := map[string][]string{
		nft.RetryTCP: {
			"syn_sent", "syn_recv", "established", "fin_wait", "close_wait", "last_ack", "time_wait", "close", "syn_sent2",
			"retrans", "unack",
		},
		nft.RetryDNS: {"unreplied", "replied"},
	}
	all := map[string]uint32{}
	err = c.list(unix.NFT_MSG_GETOBJ, model.IPv4, "", func(b []byte) error {
		name := nfnl.String(b, unix.NFTA_OBJ_NAME)[:len(nft.RetryTCP)]
		policy := nfnl.First(nfnl.First(b, unix.NFTA_OBJ_DATA), expr.NFTA_CT_TIMEOUT_DATA)
		for i, state := range states[name] {
			if seconds := nfnl.First(policy, uint16(i+1)); seconds != nil {
				all[name+" "+state] = nfnl.Uint32(seconds)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The kernel's own times are those of a new network namespace (nf_conntrack_proto_tcp.c, nf_conntrack_proto_udp.c).
func TestTimeoutPoliciesHaveTheNodesSettings(t *testing.T) {
	n := newNetNS(t)
	node := settings{}
	set := func(name string, seconds uint32) {
		t.Helper()
		node[name] = seconds
		if out, err := n.run("", "sh", "-c", fmt.Sprintf("echo %d >/proc/sys/net/netfilter/%s", seconds, name)); err != nil {
			t.Fatal(err, out)
		}
	}
	set("nf_conntrack_tcp_timeout_syn_sent", 120)
	set("nf_conntrack_tcp_timeout_established", 86400)
	set("nf_conntrack_udp_timeout", 30)
	b := openAs(t, Options{NetNS: n.fd(), Setting: node.get})
	s := exampleBuilder().Snapshot()
	apply(t, b, s)
	want := map[string]uint32{
		"retry-dns unreplied": 5, "retry-dns replied": 120,
		"retry-tcp syn_sent": 1, "retry-tcp syn_recv": 60, "retry-tcp established": 86400, "retry-tcp fin_wait": 120,
		"retry-tcp close_wait": 60, "retry-tcp last_ack": 30, "retry-tcp time_wait": 120, "retry-tcp close": 10,
		"retry-tcp syn_sent2": 120, "retry-tcp retrans": 300, "retry-tcp unack": 300,
	}
	testaid.Equal(t, "policies", want, policiesOf(t, thisKernel(n.fd())))

	set("nf_conntrack_tcp_timeout_close_wait", 3600)
	set("nf_conntrack_udp_timeout", 3) // less than we would set
	want["retry-tcp close_wait"], want["retry-dns unreplied"] = 3600, 3
	before := b.Stats(model.IPv4).Batches
	for range 2 { // the second comparison finds nothing
		b.Resync()
		apply(t, b, s)
		for _, f := range model.Families {
			if changes, err := differences(b, f, s); err != nil || !changes.Empty() {
				t.Errorf("%v: the kernel still lacks (error %v):\n%s", f, err, changes)
			}
		}
	}
	testaid.Equal(t, "policies after settings changed", want, policiesOf(t, thisKernel(n.fd())))
	if got := b.Stats(model.IPv4).Batches - before; got != 1 {
		t.Errorf("%d batches after settings changed, want 1", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	next := openAs(t, Options{NetNS: n.fd(), Setting: node.get})
	apply(t, next, s)
	if got := next.Stats(model.IPv4).Batches; got != 0 {
		t.Errorf("%d batches after a restart, want none", got)
	}
}

// Another policy takes the place of one that chains use, also chains that nothing needs any more.
func TestATimeoutPolicyOfAnUnusedChainIsReplaced(t *testing.T) {
	k, node := &nftfake.Kernel{}, settings{"nf_conntrack_tcp_timeout_established": 100}
	b := openAs(t, Options{Dial: fakeDialer(k), Setting: node.get})
	builder := exampleBuilder()
	apply(t, b, builder.Snapshot())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	builder.DeleteEndpointSlice(exampleSlice("IPv4", 3).NamespacedName) // its chain for 3 to 4 endpoints stays until now
	maps.Copy(node, settings{"nf_conntrack_tcp_timeout_established": 200})
	next := openAs(t, Options{Dial: fakeDialer(k), Setting: node.get})
	apply(t, next, builder.Snapshot())
	table, _ := contentsOf(t, next.conn, builder.Snapshot().Family(model.IPv4))
	var names, want []string
	for _, timeout := range table.Timeouts {
		names = append(names, timeout.Name)
	}
	for _, timeout := range nft.RetryTimeouts(node.get) {
		want = append(want, timeout.Name)
	}
	testaid.Equal(t, "policies", want, names)
}
