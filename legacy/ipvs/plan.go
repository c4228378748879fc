package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// A Plan turns a kernel's content into the desired one, operation by operation. Neither IPVS nor ipset has
// transactions, so the order (see phase) is such that every prefix of a plan is safe:
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

// An Op is one operation of a Plan.
type Op struct {
	Key     Key    // the virtual server that it changes, if it changes one
	Needed  bool   // without it, the rest of the plan would not be safe
	Command string // that does the same
	Do      func(Kernel) error
}

// A Kernel carries out operations.
type Kernel interface {
	SetSysctl(Sysctl) error
	// SetTimeouts sets IPVS's timeouts; 0 leaves one as it is.
	SetTimeouts(Timeouts) error
	// CreateDevice creates the dummy device, without ARP. Both families share it, so it may exist by then.
	CreateDevice() error
	CreateSet(SetName) error
	// SetRules replaces our chains by these, and puts back missing jumps.
	SetRules(*Rules) error
	// AddAddress adds an address to the device, as a /32 or /128.
	AddAddress(netip.Addr) error
	DeleteAddress(netip.Addr) error
	AddEntry(SetName, Entry) error
	DeleteEntry(SetName, Entry) error
	// AddServer adds a virtual server without real servers, and UpdateServer changes it, but not its real servers.
	AddServer(Key, Server) error
	UpdateServer(Key, Server) error
	// DeleteServer deletes a virtual server with its real servers.
	DeleteServer(Key) error
	// SetReal adds a real server with NAT, or gives it another weight. With weight 0 it gets no new connections, and is
	// deleted later, when it has no connection left.
	SetReal(k Key, a netip.AddrPort, weight int) error
	// DeleteReal deletes a real server, and ends its connections.
	DeleteReal(Key, netip.AddrPort) error
}

// Over returns the timeouts, with those of below in place of 0.
func (t Timeouts) Over(below Timeouts) Timeouts {
	return Timeouts{cmp.Or(t.TCP, below.TCP), cmp.Or(t.TCPFin, below.TCPFin), cmp.Or(t.UDP, below.UDP)}
}

func restoreCommand(f model.Family) string {
	if f == model.IPv6 {
		return "ip6tables-restore"
	}
	return "iptables-restore"
}

func entryText(set SetName, e Entry) string {
	return fmt.Sprintf("%s %v", set.In(model.FamilyOf(e.Addr)), e)
}

func realText(k Key, a netip.AddrPort, weight int) string {
	return fmt.Sprintf("%s -r %v -m -w %d", keyText(k), a, weight)
}

func keyText(k Key) string {
	option := map[model.Protocol]string{model.TCP: "-t", model.UDP: "-u", model.SCTP: "--sctp-service"}[k.Protocol]
	return option + " " + netip.AddrPortFrom(k.Addr, k.Port).String()
}

func serverText(k Key, s Server) string {
	text := keyText(k) + " -s " + s.Scheduler
	var flags []string
	for flag, name := range map[Flags]string{Fallback: "-fallback", HashPort: "-port"} {
		if s.Flags&flag != 0 && (s.Scheduler == "sh" || s.Scheduler == "mh") {
			flags = append(flags, s.Scheduler+name)
		}
	}
	if slices.Sort(flags); len(flags) > 0 {
		text += " -b " + strings.Join(flags, ",")
	}
	if s.Flags&Persistent != 0 {
		text += fmt.Sprintf(" -p %.0f", s.Timeout.Seconds())
	}
	return text
}

// Text returns the state as input of sysctl -p -, ip -batch -, ipset restore or ipvsadm -R, for kernels without any
// object of ours: the commands of the plan from nothing. It does not depend on history.
func (s *State) Text(program string) string {
	var b strings.Builder
	if program == "sysctl" {
		for _, sysctl := range s.Options.Sysctls(s.Family) {
			fmt.Fprintf(&b, "# %s\n%s = %s\n", sysctl.Why, sysctl.Name, sysctl.Value)
		}
		return b.String()
	}
	for _, op := range DiffContent(NewContent(s.Family), s) {
		words, ok := strings.CutPrefix(op.Command, program+" ")
		if ok && (program != "ipvsadm" || op.Key != (Key{})) { // the timeouts are no virtual server's
			fmt.Fprintln(&b, words)
		}
	}
	return b.String()
}

// String returns all parts, each behind the command that takes it.
func (s *State) String() string {
	var b strings.Builder
	for _, part := range [...]struct{ command, text string }{
		{"sysctl -p -", s.Text("sysctl")},
		{"ipset restore", s.Text("ipset")},
		{restoreCommand(s.Family), s.Rules.String()},
		{"ipvsadm -R", s.Text("ipvsadm")},
		{"ip -batch -", s.Text("ip")},
	} {
		fmt.Fprintf(&b, "# %v: %s\n%s\n", s.Family, part.command, part.text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
