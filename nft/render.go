package nft

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Word is "map" or "set".
func (s Set) Word() string {
	if s.Verdicts || s.Data != nil {
		return "map"
	}
	return "set"
}

// Declaration returns the lines inside a set's braces, except its elements.
func (s Set) Declaration(f model.Family) []string {
	lines := []string{s.typeText(f)}
	switch {
	case s.Interval:
		lines = append(lines, "flags interval")
	case s.Dynamic:
		lines = append(lines, "flags dynamic,timeout")
	}
	if s.Timeout > 0 {
		lines = append(lines, "timeout "+durationText(s.Timeout))
	}
	if s.Counter {
		lines = append(lines, "counter")
	}
	if s.Comment != "" {
		lines = append(lines, fmt.Sprintf("comment %q", s.Comment))
	}
	return lines
}

// typeText declares slots by the expression that makes them. With the type mark, nft 1.0.6 can't
// load a listing of the table, and with integer it can't edit one.
func (s Set) typeText(f model.Family) string {
	addr := [...]string{model.IPv4: "ipv4_addr", model.IPv6: "ipv6_addr"}[f]
	names := map[Type]string{Addr: addr, Proto: "inet_proto", Service: "inet_service"}
	word, dataPort := "type ", "inet_service"
	if slices.Contains(s.Key, Slot) {
		names = map[Type]string{
			Addr: FamilyWord(f) + " daddr", Proto: "meta l4proto", Service: "th dport", Slot: "numgen random mod 1",
		}
		// With "th dport" as data, nft 1.0.6 refuses every file that names the table.
		word, dataPort = "typeof ", "tcp dport"
	}
	join := func(types []Type) string {
		words := make([]string, len(types))
		for i, t := range types {
			words[i] = names[t]
		}
		return strings.Join(words, " . ")
	}
	text := word + join(s.Key)
	if s.Verdicts {
		text += " : verdict"
	} else if s.Data != nil {
		names[Service] = dataPort
		text += " : " + join(s.Data)
	}
	return text
}

// Declaration returns the line that says where a base chain is.
func (c Chain) Declaration() string {
	return fmt.Sprintf("type %s hook %v priority %d; policy accept;", c.Type(), c.Hook, c.Prio)
}

// String returns the table as a script that nft loads.
func (t *Table) String() string {
	var s strings.Builder
	_ = t.Write(&s)
	return s.String()
}

// Write writes the table as a script that nft loads. The same table always gives the same bytes.
func (t *Table) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "table %s %s {\n\tcomment %q\n", FamilyWord(t.Family), TableName, TableComment)
	for _, timeout := range t.Timeouts {
		lines := strings.Join(timeout.Declaration(t.Family), "\n\t\t")
		fmt.Fprintf(out, "\n\tct timeout %s {\n\t\t%s\n\t}\n", timeout.Name, lines)
	}
	for _, s := range t.Sets {
		fmt.Fprintf(out, "\n\t%s %s {\n", s.Word(), s.Name)
		for _, line := range s.Declaration(t.Family) {
			fmt.Fprintf(out, "\t\t%s\n", line)
		}
		keys := slices.SortedFunc(t.Keys(s.Name), s.CompareKeys)
		for i, key := range keys {
			if i == 0 {
				fmt.Fprintf(out, "\t\telements = {\n")
			}
			e, _ := t.Get(s.Name, key)
			fmt.Fprintf(out, "\t\t\t%s,\n", s.Text(t.Family, e))
		}
		if len(keys) > 0 {
			fmt.Fprintf(out, "\t\t}\n")
		}
		fmt.Fprintf(out, "\t}\n")
	}
	for _, f := range t.Flowtables {
		lines := strings.Join(f.Declaration(), "\n\t\t")
		fmt.Fprintf(out, "\n\t# the devices are added as they come\n\tflowtable %s {\n\t\t%s\n\t}\n", f.Name, lines)
	}
	for _, c := range t.Chains {
		fmt.Fprintf(out, "\n\t# %s\n\tchain %s {\n", c.Comment, c.Name)
		if c.Hook != NoHook {
			fmt.Fprintf(out, "\t\t%s\n", c.Declaration())
		}
		for _, rule := range c.Rules {
			fmt.Fprintf(out, "\t\t%s\n", rule.Text(t.Family))
		}
		fmt.Fprintf(out, "\t}\n")
	}
	fmt.Fprintf(out, "}\n")
	return out.Flush()
}

// CompareKeys orders keys as a person would: slot 10 after slot 9, though slots are in the host's byte order.
func (s Set) CompareKeys(a, b string) int {
	if !s.HasSlots() {
		return strings.Compare(a, b)
	}
	n := len(a) - RegisterSize
	return cmp.Or(strings.Compare(a[:n], b[:n]), cmp.Compare(decodeSlot(a[n:]), decodeSlot(b[n:])))
}
