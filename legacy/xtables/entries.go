package xtables

import (
	"encoding/binary"
	"fmt"

	"github.com/vmapd/vmapd/model"
)

// Entry is one entry of a table, for readers of its rules.
type Entry struct {
	Offset, End int
	// Chain is the name of the chain that the entry begins; "" if it is a rule or a policy.
	Chain string
	// Head is the part about addresses, interfaces and the protocol (struct ipt_ip or ip6t_ip6).
	Head    []byte
	Goto    bool // a jump does not come back
	Matches []Extension
	Target  Extension // without a name: Verdict counts
	Verdict int       // negative, or the offset of the rule to jump to
}

// Extension is a match or a target with its data.
type Extension struct {
	Name     string
	Revision uint8
	Data     []byte
}

// gotoBit returns where the bit is that makes a jump a goto (IPT_F_GOTO, IP6T_F_GOTO).
func gotoBit(f model.Family) (at int, bit byte) {
	if f == model.IPv4 {
		return 82, 0x02
	}
	return 131, 0x04
}

// Read returns all entries but the last, which only ends the table.
func (t *Table) Read() ([]Entry, error) {
	list, err := t.read()
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(list))
	for _, e := range list[:len(list)-1] {
		entry := Entry{Offset: e.offset, End: e.end}
		if e.begins {
			entry.Chain = e.chain
			out = append(out, entry)
			continue
		}
		if err := t.rule(&entry); err != nil {
			return nil, fmt.Errorf("entry at %d: %w", e.offset, err)
		}
		out = append(out, entry)
	}
	return out, nil
}

// rule reads the parts of a rule.
func (t *Table) rule(e *Entry) error {
	l, b := layouts[t.Family], t.Entries[e.Offset:e.End]
	e.Head = b[:l.targetOffset]
	at, bit := gotoBit(t.Family)
	e.Goto = b[at]&bit != 0
	target := int(binary.NativeEndian.Uint16(b[l.targetOffset:]))
	for at := l.size; at < target; {
		x, size, err := readExtension(b[at:target])
		if err != nil {
			return err
		}
		e.Matches = append(e.Matches, x)
		at += size
	}
	var err error
	if e.Target, _, err = readExtension(b[target:]); err != nil {
		return err
	}
	const verdictSize = 4
	if e.Target.Name == "" && len(e.Target.Data) >= verdictSize {
		e.Verdict = int(int32(binary.NativeEndian.Uint32(e.Target.Data)))
	}
	return nil
}

// readExtension reads struct xt_entry_match or xt_entry_target.
func readExtension(b []byte) (x Extension, size int, err error) {
	const revision = targetName + nameSize
	if len(b) >= targetData {
		size = int(binary.NativeEndian.Uint16(b))
	}
	if size < targetData || size > len(b) {
		return x, 0, fmt.Errorf("an extension of %d bytes in %d", size, len(b))
	}
	return Extension{Name: text(b[targetName:][:nameSize]), Revision: b[revision], Data: b[targetData:size]}, size, nil
}
