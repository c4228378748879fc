package kernel

import (
	"testing"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// FuzzForeign reads what other programs could have written into our table, and notifications about theirs.
func FuzzForeign(f *testing.F) {
	for _, name := range []string{"immediate", "log", "dynset", "ct", "bitwise", "reject", "of a later kernel"} {
		var m messages
		exprs := m.nest(unix.NFTA_RULE_EXPRESSIONS)
		at := m.nest(unix.NFTA_LIST_ELEM)
		m.string(unix.NFTA_EXPR_NAME, name)
		data := m.nest(unix.NFTA_EXPR_DATA)
		verdict := m.nest(unix.NFTA_IMMEDIATE_DATA)
		m.value(unix.NFTA_DATA_VERDICT, "x")
		for _, at := range []int{verdict, data, at, exprs} {
			m.close(at)
		}
		f.Add(m.b)
	}
	f.Add([]byte("\x0b\x00\x0d\x00svc:web"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, family := range model.Families {
			readSet(family, b)
		}
		readClient(b)
		readVerdict(b)
		readComment(b, userdata.NFTNL_UDATA_SET_COMMENT)
		hash, _ := nfnl.Userdata(b, ruleHashUD)
		nfnl.Uint64(hash)
		readHook(uint32(len(b)))
		g := Watch{}
		g.read(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWRULE}, Data: b})
	})
}
