package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Text is a State as input of the usual programs. It does not depend on history.
type Text struct {
	Sysctls string // sysctl -p -
	Device  string // ip -batch -
	Sets    string // ipset restore
	Rules   string // iptables-restore, ip6tables-restore
	Servers string // ipvsadm -R
}

// Text returns the state as text, for kernels without any object of ours.
func (s *State) Text() Text { return s.Content().text(s.Options) }

func (c *Content) text(o Options) Text {
	var t Text
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	operation := func(op Op, program string) {
		text, _ := Line(op, program)
		line("%s", text)
	}
	flush := func() string {
		defer b.Reset()
		return b.String()
	}
	for _, sysctl := range o.Sysctls(c.Family) {
		line("# %s", sysctl.Why)
		line("%s = %s", sysctl.Name, sysctl.Value)
	}
	t.Sysctls = flush()
	line("link add %s type dummy", c.Device)
	line("link set %s arp off", c.Device)
	for _, a := range slices.SortedFunc(maps.Keys(c.Addrs), netip.Addr.Compare) {
		line("address add %v/%d dev %s", a, a.BitLen(), c.Device)
	}
	t.Device = flush()
	for _, name := range SetNames {
		line("create %s", name.Declaration(c.Family))
		for _, e := range slices.SortedFunc(maps.Keys(c.Sets[name]), compareEntries) {
			operation(AddEntry{c.Family, name, e}, "ipset")
		}
	}
	t.Sets = flush()
	t.Rules = c.Companion.String()
	for _, k := range slices.SortedFunc(maps.Keys(c.Servers), compareKeys) {
		server := c.Servers[k]
		operation(AddServer{k, server}, "ipvsadm")
		for _, a := range slices.SortedFunc(maps.Keys(server.Real), netip.AddrPort.Compare) {
			operation(AddReal{k, a, server.Real[a]}, "ipvsadm")
		}
	}
	t.Servers = flush()
	return t
}

// String returns all parts, each behind the name of its program.
func (s *State) String() string {
	t, restore := s.Text(), restoreCommand(s.Family)
	var b strings.Builder
	for _, part := range [...]struct{ program, text string }{
		{"sysctl -p -", t.Sysctls},
		{"ipset restore", t.Sets},
		{restore, t.Rules},
		{"ipvsadm -R", t.Servers},
		{"ip -batch -", t.Device},
	} {
		fmt.Fprintf(&b, "# %v: %s\n%s\n", s.Family, part.program, part.text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
