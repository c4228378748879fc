package kernel

import (
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// Attributes of objects (linux/netfilter/nf_tables.h: enum nft_object_attributes, enum
// nft_ct_timeout_timeout_attributes, enum ctattr_timeout_tcp, ctattr_timeout_udp).
const (
	objectUserdata  = 0x8 // NFTA_OBJ_USERDATA, Linux 5.10
	objectCommentUD = 0   // NFTNL_UDATA_OBJ_COMMENT
	timeoutL3Proto  = 0x1 // NFTA_CT_TIMEOUT_L3PROTO
	timeoutL4Proto  = 0x2 // NFTA_CT_TIMEOUT_L4PROTO
	timeoutPolicy   = 0x3 // NFTA_CT_TIMEOUT_DATA

	timeoutUnanswered = 0x1 // CTA_TIMEOUT_TCP_SYN_SENT, CTA_TIMEOUT_UDP_UNREPLIED
)

// timeoutObject begins a message about a timeout policy. The library's expr.CtTimeout sends times of its own for the
// states that are not set, and changes its table of these for all callers (CtStateTCPTimeoutDefaults).
func (m *messages) timeoutObject(msgType, flags uint16, name string) (at int) {
	at = m.object(msgType, flags)
	m.string(unix.NFTA_OBJ_NAME, name)
	m.uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_CT_TIMEOUT)
	return at
}

func (m *messages) addTimeout(t nft.Timeout) {
	at := m.timeoutObject(unix.NFT_MSG_NEWOBJ, unix.NLM_F_CREATE, t.Name)
	data := m.nest(unix.NFTA_OBJ_DATA | unix.NLA_F_NESTED)
	m.bytes(timeoutL3Proto, []byte{0, nfproto(m.family)})
	m.bytes(timeoutL4Proto, []byte{byte(t.Protocol)})
	policy := m.nest(timeoutPolicy | unix.NLA_F_NESTED)
	m.uint32(timeoutUnanswered, t.Unanswered)
	m.close(policy)
	m.close(data)
	m.bytes(objectUserdata, userdata.AppendString(nil, objectCommentUD, t.Comment))
	m.end(at)
}

// readTimeouts reads the names of the timeout policies. Other objects are not ours.
func (c *conn) readTimeouts(t *nft.Table) error {
	return c.list(unix.NFT_MSG_GETOBJ, t.Family, "", func(b []byte) error {
		if nfnl.Uint32(nfnl.First(b, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_CT_TIMEOUT {
			t.Timeouts = append(t.Timeouts, nft.Timeout{Name: string(nfnl.Text(nfnl.First(b, unix.NFTA_OBJ_NAME)))})
		}
		return nil
	})
}
