package ipvs

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A Plan turns a kernel's content into the desired one, operation by operation. IPVS has no transactions, so the order
// is such that every prefix of a plan is safe:
//
//   - no connection is sent to an endpoint, or to a socket on the node, where neither the
//     state before nor the state after would send it;
//   - none is refused that both would forward, and none is dropped that neither would drop;
//   - none reaches an endpoint with its own source address that would be masqueraded on the path there.
//
// Changes of the settings are an exception: rules that distinguish inside from outside, or that drop connections to
// unallocated addresses, change at once and first, and endpoints after that one by one.
//
// After an error, the operations before it have been carried out: read the kernel's content, and continue with
// DiffContent.
type Plan []Op

// Op is an operation of a Plan: one of the types below. Its text is a command.
type Op interface{ String() string }

// Line returns an operation as a line for "ipset restore", or for "ipvsadm -R", if the program carries it out.
func Line(op Op, program string) (line string, ok bool) {
	return strings.CutPrefix(op.String(), program+" ")
}

// The operations.
type (
	// SetSysctl sets a kernel parameter, if it is meant for the kernel's version.
	SetSysctl struct{ Sysctl }
	// SetTimeouts sets IPVS's timeouts; 0 leaves one as it is.
	SetTimeouts struct{ Timeouts }
	// CreateDevice creates the dummy device, without ARP. Both families share it, so it may exist by then.
	CreateDevice struct{ Name string }
	// CreateSet creates an empty ipset.
	CreateSet struct {
		Family model.Family
		Set    SetName
	}
	// SetRules replaces our chains by these, and puts back missing jumps.
	SetRules struct{ Rules *Rules }
	// AddAddress adds an address to the dummy device, as a /32 or /128.
	AddAddress struct {
		Device string
		Addr   netip.Addr
	}
	// DeleteAddress deletes an address from the dummy device.
	DeleteAddress struct {
		Device string
		Addr   netip.Addr
	}
	// AddEntry adds an entry to an ipset.
	AddEntry struct {
		Family model.Family
		Set    SetName
		Entry  Entry
	}
	// DeleteEntry deletes an entry from an ipset.
	DeleteEntry struct {
		Family model.Family
		Set    SetName
		Entry  Entry
	}
	// AddServer adds a virtual server without real servers.
	AddServer struct {
		Key    Key
		Server Server // Real is ignored
	}
	// UpdateServer changes a virtual server, but not its real servers.
	UpdateServer struct {
		Key    Key
		Server Server // Real is ignored
	}
	// DeleteServer deletes a virtual server with its real servers.
	DeleteServer struct{ Key Key }
	// AddReal adds a real server with NAT (ipvsadm -m). One that is still there, draining, gets
	// its weight back and is not deleted later.
	AddReal struct {
		Key    Key
		Addr   netip.AddrPort
		Weight int
	}
	// DrainReal gives a real server weight 0, so that it gets no new connections. It is deleted
	// later, when it has no connection left.
	DrainReal struct {
		Key  Key
		Addr netip.AddrPort
	}
	// DeleteReal deletes a real server, and ends its connections.
	DeleteReal struct {
		Key  Key
		Addr netip.AddrPort
	}
)

func (o SetSysctl) String() string { return fmt.Sprintf("sysctl -w %s=%s", o.Name, o.Value) }

func (o SetTimeouts) String() string {
	return fmt.Sprintf("ipvsadm --set %.0f %.0f %.0f", o.TCP.Seconds(), o.TCPFin.Seconds(), o.UDP.Seconds())
}

// Over returns the timeouts, with those of below in place of 0.
func (t Timeouts) Over(below Timeouts) Timeouts {
	return Timeouts{cmp.Or(t.TCP, below.TCP), cmp.Or(t.TCPFin, below.TCPFin), cmp.Or(t.UDP, below.UDP)}
}

func (o CreateDevice) String() string { return "ip link add " + o.Name + " type dummy" }

func (o CreateSet) String() string { return "ipset create " + o.Set.Declaration(o.Family) }

func (o SetRules) String() string { return restoreCommand(o.Rules.Family) + " --noflush" }

func restoreCommand(f model.Family) string {
	if f == model.IPv6 {
		return "ip6tables-restore"
	}
	return "iptables-restore"
}

func (o AddAddress) String() string {
	return fmt.Sprintf("ip address add %v/%d dev %s", o.Addr, o.Addr.BitLen(), o.Device)
}

func (o DeleteAddress) String() string {
	return fmt.Sprintf("ip address delete %v/%d dev %s", o.Addr, o.Addr.BitLen(), o.Device)
}

func (o AddEntry) String() string { return fmt.Sprintf("ipset add %s %v", o.Set.In(o.Family), o.Entry) }

func (o DeleteEntry) String() string {
	return fmt.Sprintf("ipset del %s %v", o.Set.In(o.Family), o.Entry)
}

func (o AddServer) String() string { return "ipvsadm -A " + serverText(o.Key, o.Server) }

func (o UpdateServer) String() string { return "ipvsadm -E " + serverText(o.Key, o.Server) }

func (o DeleteServer) String() string { return "ipvsadm -D " + keyText(o.Key) }

func (o AddReal) String() string {
	return fmt.Sprintf("ipvsadm -a %s -r %v -m -w %d", keyText(o.Key), o.Addr, o.Weight)
}

func (o DrainReal) String() string {
	return fmt.Sprintf("ipvsadm -e %s -r %v -m -w 0, and when idle -d", keyText(o.Key), o.Addr)
}

func (o DeleteReal) String() string {
	return fmt.Sprintf("ipvsadm -d %s -r %v", keyText(o.Key), o.Addr)
}

func keyText(k Key) string {
	option := map[model.Protocol]string{model.TCP: "-t", model.UDP: "-u", model.SCTP: "--sctp-service"}[k.Protocol]
	return option + " " + netip.AddrPortFrom(k.Addr, k.Port).String()
}

func serverText(k Key, s Server) string {
	text := keyText(k) + " -s " + s.Scheduler
	if flags := s.schedulerFlags(); flags != "" {
		text += " -b " + flags
	}
	if s.Flags&Persistent != 0 {
		text += fmt.Sprintf(" -p %.0f", s.Timeout.Seconds())
	}
	return text
}

func (s Server) schedulerFlags() string {
	if s.Scheduler != "sh" && s.Scheduler != "mh" {
		return ""
	}
	var flags []string
	if s.Flags&Fallback != 0 {
		flags = append(flags, s.Scheduler+"-fallback")
	}
	if s.Flags&HashPort != 0 {
		flags = append(flags, s.Scheduler+"-port")
	}
	return strings.Join(flags, ",")
}

// Text is a State as input of the usual programs. It does not depend on history.
type Text struct {
	Sysctls string // sysctl -p -
	Device  string // ip -batch -
	Sets    string // ipset restore
	Rules   string // iptables-restore, ip6tables-restore
	Servers string // ipvsadm -R
}

// Text returns the state as text, for kernels without any object of ours.
func (s *State) Text() Text { return s.KernelState().text(s.Options) }

func (c *KernelState) text(o Options) Text {
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
	t.Rules = c.Rules.String()
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
