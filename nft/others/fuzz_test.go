package others

import (
	"testing"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// attr is an attribute with others in it, or with bytes.
func attr(kind uint16, inside ...[]byte) []byte {
	var data []byte
	for _, b := range inside {
		data = append(data, b...)
	}
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: kind, Data: data}})
	if err != nil {
		panic(err)
	}
	return b
}

// seedRule is a message about a rule, behind its header.
func seedRule(user string, exprs ...[]byte) []byte {
	rule := [][]byte{
		attr(unix.NFTA_RULE_TABLE, []byte("theirs\x00")), attr(unix.NFTA_RULE_CHAIN, []byte("input\x00")),
		attr(unix.NFTA_RULE_HANDLE, []byte{0, 0, 0, 0, 0, 0, 0, 7}), attr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs...),
		attr(unix.NFTA_RULE_USERDATA, []byte(user)), attr(99, []byte("of a later kernel")),
	}
	return concat(rule...)
}

func concat(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func seedExpr(name string, data []byte) []byte {
	return attr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, attr(unix.NFTA_EXPR_NAME, []byte(name+"\x00")), attr(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, data))
}

// userData are such that programs have written, or nearly.
var userData = []string{"", "\x00\x03hi\x00", "svc:web,port:80", "\x4f\x66\xe8\xa1", "\x00", "\x00\xff", "\x01\x00\x00\x02x\x00", "\xff\xff\xff"}

// seedExprs are expressions that are looked at, some with attributes that are cut.
func seedExprs(t testing.TB) (all [][]byte) {
	t.Helper()
	unknown := xt.Unknown("12345678901234567890")
	for _, e := range []expr.Any{
		&expr.Counter{}, &expr.Ct{Key: expr.CtKeyMARK, Register: 1, SourceRegister: true},
		&expr.Immediate{Register: 1, Data: []byte{1, 2, 3, 4}}, &expr.Lookup{SourceRegister: 1, SetName: "__set0"},
		&expr.Lookup{SourceRegister: 1, SetName: "m", IsDestRegSet: true}, &expr.Match{Name: "comment", Info: &unknown},
		&expr.Match{Name: "tcp", Info: &xt.Tcp{}}, &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: 2, RegAddrMin: 1}, &expr.Notrack{}, &expr.Redir{},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}, &expr.Target{Name: "MARK", Rev: 2, Info: &unknown},
		&expr.Target{Name: "DNAT", Rev: 2, Info: &xt.NatRange2{}}, &expr.Target{Name: "DNAT", Rev: 0, Info: &unknown},
		&expr.Target{Name: "DNAT", Rev: 2, Info: &unknown}, &expr.Target{Name: "CT", Rev: 1, Info: &unknown},
		&expr.Verdict{Kind: expr.VerdictJump, Chain: "other"}, &expr.Verdict{Kind: expr.VerdictDrop},
	} {
		b, err := expr.Marshal(unix.NFPROTO_IPV4, e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	verdict := attr(unix.NFTA_IMMEDIATE_DATA, attr(unix.NFTA_DATA_VERDICT, []byte{1}))
	return append(all,
		seedExpr("immediate", append(attr(unix.NFTA_IMMEDIATE_DREG, []byte{0, 0, 0, 0}), verdict...)),
		seedExpr("nat", attr(unix.NFTA_NAT_TYPE, []byte{1})), seedExpr("target", nil),
		seedExpr("socket", nil), seedExpr("of a later kernel", []byte("abc")), seedExpr("", nil), attr(unix.NFTA_LIST_ELEM))
}

// FuzzRule shows that each rule becomes a line, wherever it ends.
func FuzzRule(f *testing.F) {
	exprs := seedExprs(f)
	f.Add(byte(unix.NFPROTO_IPV4), seedRule("", exprs...))
	for _, e := range exprs {
		f.Add(byte(unix.NFPROTO_INET), seedRule("\x00\x03hi\x00", e))
	}
	f.Fuzz(func(t *testing.T, family byte, b []byte) {
		for n := range len(b) + 1 {
			if n < len(b)-8 && n%5 > 0 {
				continue
			}
			if l := decodeRule(family, b[:n]); l.To.IsValid() && !l.DNAT || (l.target != "") && !l.Decides {
				t.Errorf("%+v from %x", l, b[:n])
			}
		}
	})
}

// FuzzObjects shows that tables and chains are read, whatever they have.
func FuzzObjects(f *testing.F) {
	hook := attr(unix.NFTA_CHAIN_HOOK, attr(unix.NFTA_HOOK_HOOKNUM, []byte{0, 0, 0, 1}), attr(unix.NFTA_HOOK_PRIORITY, []byte{255, 255, 255, 0}))
	name := attr(unix.NFTA_CHAIN_TABLE, []byte("theirs\x00"))
	for _, b := range [][]byte{
		concat(name, attr(unix.NFTA_CHAIN_NAME, []byte("input\x00")), hook, attr(unix.NFTA_CHAIN_POLICY, []byte{0, 0, 0, 0})),
		concat(name, attr(unix.NFTA_TABLE_FLAGS, []byte{0, 0, 0, 2}), attr(6, []byte("svc:web"))),
		{5, 0},
		{255, 255, 1, 0, 1},
	} {
		f.Add(byte(unix.NFPROTO_IPV4), b)
	}
	f.Fuzz(func(_ *testing.T, family byte, b []byte) {
		for n := range len(b) + 1 {
			decodeTable(family, b[:n])
			decodeChain(family, b[:n])
		}
	})
}
