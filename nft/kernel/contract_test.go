package kernel

import (
	"errors"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/batch"
	"github.com/vmapd/vmapd/nft/nftfake"
)

// contract are batches, one behind the other on the same tables, with what Linux says to them.
var contract = []struct {
	name string
	make func(m *messages)
	want unix.Errno
}{
	{"a chain without a table", func(m *messages) { m.addChain(nft.Chain{Name: "a"}) }, unix.ENOENT},
	{"delete what is not there", func(m *messages) { m.deleteTable() }, unix.ENOENT},
	{"unknown flags", func(m *messages) { m.addTable(1 << 10) }, unix.EOPNOTSUPP},
	{"a table", func(m *messages) { m.addTable(0) }, 0},
	{"the same table", func(m *messages) { m.addTable(0) }, 0},
	{"the same table, which must not be there", func(m *messages) {
		m.end(m.object(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL))
	}, unix.EEXIST},
	{"a rule without its chain", func(m *messages) { m.addRule("a", nft.Rule{nft.Masquerade{}}) }, unix.ENOENT},
	{"chains and sets", func(m *messages) {
		m.addChain(nft.Chain{Name: "a"})
		m.addChain(nft.Chain{Name: "b"})
		m.addChain(nft.Chain{Name: "base", Hook: nft.Prerouting, Prio: -7})
		for _, name := range []string{nft.ClusterIPs, nft.ServiceIPs, clusterClients, "unused"} {
			s := nft.DeclarationOf(nft.ClusterIPs)
			if name != "unused" {
				s = nft.DeclarationOf(name)
			}
			s.Name = name
			m.addSet(s)
		}
	}, 0},
	{"a chain again", func(m *messages) { m.addChain(nft.Chain{Name: "a"}) }, 0},
	{"a set again", func(m *messages) { m.addSet(nft.DeclarationOf(nft.ClusterIPs)) }, 0},
	{"a rule that looks into no set", func(m *messages) { m.addRule("a", nft.Rule{inSet("absent")}) }, unix.ENOENT},
	{"a rule that jumps nowhere", func(m *messages) { m.addRule("a", nft.Rule{nft.Verdict{Kind: nft.Jump, Chain: "absent"}}) }, unix.ENOENT},
	{"a rule that jumps to a hook", func(m *messages) { m.addRule("a", nft.Rule{nft.Verdict{Kind: nft.Jump, Chain: "base"}}) }, unix.EOPNOTSUPP},
	{"an expression that no module has", func(m *messages) {
		at := m.object(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		m.string(unix.NFTA_RULE_CHAIN, "a")
		list := m.nest(unix.NFTA_RULE_EXPRESSIONS | unix.NLA_F_NESTED)
		one := m.nest(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
		m.string(unix.NFTA_EXPR_NAME, "teleport")
		m.close(one)
		m.close(list)
		m.end(at)
	}, unix.ENOENT},
	{"rules", func(m *messages) {
		m.addRule("a", nft.Rule{inSet(nft.ClusterIPs), nft.Verdict{Kind: nft.Jump, Chain: "b"}})
	}, 0},
	{"delete a chain that a rule jumps to", func(m *messages) { deleted(m, nft.Chain{Name: "b"}) }, unix.EBUSY},
	{"delete a set that a rule looks into", func(m *messages) { deleted(m, nft.Set{Name: nft.ClusterIPs}) }, unix.EBUSY},
	{"delete a set", func(m *messages) { deleted(m, nft.Set{Name: "unused"}) }, 0},
	{"delete it again", func(m *messages) { deleted(m, nft.Set{Name: "unused"}) }, unix.ENOENT},
	{"an element of no set", element(unix.NFT_MSG_NEWSETELEM, "unused", nft.Element{Key: "1234"}), unix.ENOENT},
	{"an element", element(unix.NFT_MSG_NEWSETELEM, nft.ClusterIPs, nft.Element{Key: "1234"}), 0},
	{"the same element", element(unix.NFT_MSG_NEWSETELEM, nft.ClusterIPs, nft.Element{Key: "1234"}), 0},
	{"a key that is too long", element(unix.NFT_MSG_NEWSETELEM, nft.ClusterIPs, nft.Element{Key: "12345678"}), unix.EINVAL},
	{"delete an element", element(unix.NFT_MSG_DELSETELEM, nft.ClusterIPs, nft.Element{Key: "1234"}), 0},
	{"delete it once more", element(unix.NFT_MSG_DELSETELEM, nft.ClusterIPs, nft.Element{Key: "1234"}), unix.ENOENT},
	{"a verdict", verdict("a"), 0},
	{"the same verdict", verdict("a"), 0},
	{"another verdict", verdict("b"), unix.EEXIST},
	{"a verdict that leads nowhere", verdict("absent"), unix.ENOENT},
	{"delete a chain that an element leads to", func(m *messages) {
		m.remove(unix.NFT_MSG_DELRULE, unix.NFTA_RULE_CHAIN, "a")
		deleted(m, nft.Chain{Name: "a"})
	}, unix.EBUSY},
	{"a map's element without data", element(unix.NFT_MSG_NEWSETELEM, clusterClients, nft.Element{Key: "1234"}), unix.EINVAL},
	{"a timeout where there is none", func(m *messages) {
		set := nft.DeclarationOf(nft.ClusterIPs)
		m.client(unix.NFT_MSG_NEWSETELEM, &set, client{nft.Element{Key: "4321"}, 1e9, 1e9})
	}, unix.EINVAL},
	{"a chain less", func(m *messages) {
		m.remove(unix.NFT_MSG_DELRULE, unix.NFTA_RULE_CHAIN, "a")
		deleted(m, nft.Chain{Name: "b"})
	}, 0},
	{"a mistake", func(m *messages) { m.addChain(nft.Chain{Name: "c"}); deleted(m, nft.Chain{Name: "absent"}) }, unix.ENOENT},
	{"nothing of it was done", func(m *messages) { deleted(m, nft.Chain{Name: "c"}) }, unix.ENOENT},
}

// beforeContract are other answers of older kernels.
var beforeContract = map[string]unix.Errno{"another verdict": unix.EBUSY, "unknown flags": unix.EINVAL}

func inSet(name string) nft.InSet {
	return nft.InSet{Key: nft.Key{{Field: nft.DestAddr}}, Set: name}
}

func deleted(m *messages, object any) {
	m.operation(batch.Op{Verb: batch.Delete, Object: object}, 0)
}

func element(msgType uint16, set string, e nft.Element) func(m *messages) {
	return func(m *messages) {
		s := nft.DeclarationOf(set)
		s.Name = set
		m.elements(msgType, &s, []nft.Element{e})
	}
}

func verdict(chain string) func(m *messages) {
	return element(unix.NFT_MSG_NEWSETELEM, nft.ServiceIPs, nft.Element{
		Key: "1234\x06\x00\x00\x00\x00\x50\x00\x00", Verdict: nft.Verdict{Kind: nft.Goto, Chain: chain},
	})
}

// The kernel in memory answers as Linux does.
func TestTheFakeKeepsTheContract(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { keepsContract(t, fakeDialer(&nftfake.Kernel{})) })
	t.Run("Linux", func(t *testing.T) { keepsContract(t, thisKernel(newNetNS(t).fd())) })
}

func keepsContract(t *testing.T, kernel dialer) {
	t.Helper()
	c, err := kernel.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.close() })
	for _, tt := range contract {
		for _, commit := range []bool{false, true} { // what is forgotten changes nothing
			m := c.newBatch(model.IPv4, nft.TableName)
			tt.make(&m)
			send := c.try
			if commit {
				send = c.commit
			}
			err := send(&m)
			got, _ := errors.AsType[unix.Errno](err)
			if older, ok := beforeContract[tt.name]; got != tt.want && !(ok && got == older) {
				t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
			}
			if op, ok := errors.AsType[*netlink.OpError](err); ok && op.Sequence != m.count && op.Sequence != m.count-1 {
				t.Errorf("%s: the answer is about message %d, want the last", tt.name, op.Sequence)
			}
		}
	}
}
