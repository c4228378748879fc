package others

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// untracks reports whether a target of iptables keeps a packet from connection tracking.
func untracks(t *expr.Target) bool {
	const notrack = 1 << 0 // XT_CT_NOTRACK in the flags of struct xt_ct_target_info
	info, _ := t.Info.(*xt.Unknown)
	return t.Name == "NOTRACK" ||
		t.Name == "CT" && info != nil && len(*info) >= 2 && binary.NativeEndian.Uint16(*info)&notrack != 0
}

// targetText returns a target of iptables as text; of those that mark a packet, with the options, as iptables-save has
// them.
func targetText(t *expr.Target) string {
	// The revisions of struct xt_mark_tginfo2, xt_connmark_tginfo1 and xt_connmark_tginfo2; where the last two have
	// the mode.
	const mark, connmark, shifted, size, mode, shiftedMode = 2, 1, 2, 8, 12, 14
	text := fmt.Sprintf("xt target %q", t.Name)
	info, ok := t.Info.(*xt.Unknown)
	at := map[uint32]int{connmark: mode, shifted: shiftedMode}[t.Rev]
	switch {
	case untracks(t):
		return text + " --notrack"
	case !ok || len(*info) < size:
	case t.Name == "CONNMARK" && at > 0 && len(*info) > at && (*info)[at] == 1:
		return text + " --save-mark"
	case t.Name == "CONNMARK" && at > 0 && len(*info) > at && (*info)[at] == 2:
		return text + " --restore-mark"
	case t.Name == "CONNMARK" && at > 0, t.Name == "MARK" && t.Rev == mark:
		return fmt.Sprintf("%s --set-xmark %s/%s", text, native((*info)[:4]), native((*info)[4:8]))
	}
	return text
}
