package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// The parts of rules, also of those that the IPVS backend needs besides its virtual servers. They are spelled as the
// programs list them, so that a rule that was written and the rule that is listed are the same text.

// Matches without parameters.
const (
	FromNode      = "-m addrtype --src-type LOCAL"
	NotToNode     = "-m addrtype ! --dst-type LOCAL"
	IsNew         = "-m conntrack --ctstate NEW"
	IsInvalid     = "-m conntrack --ctstate INVALID"
	IsEstablished = "-m conntrack --ctstate RELATED,ESTABLISHED"
	isDNATed      = "-m conntrack --ctstate DNAT"
	wasSeen       = "-m conntrack --ctstatus CONFIRMED"
)

// Targets without parameters.
const (
	Return      = "-j RETURN"
	Accept      = "-j ACCEPT"
	Drop        = "-j DROP"
	gotoReject  = "-g " + rejectChain
	markOutside = "-j " + outsideChain
)

// Join makes a rule of its parts, and overwrites them. An empty match holds for every packet.
func Join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " ")
}

// host is an address as the programs print it.
func host(a netip.Addr) string { return a.String() + "/" + strconv.Itoa(a.BitLen()) }

// InRange matches sources ("-s ") or destinations ("-d ") in a range.
func InRange(option string, p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return option + p.String()
}

// FromPods returns the matches of packets from pods: one of them must hold.
func FromPods(p model.PodSources) []string {
	if name := p.Interface; name != "" {
		if p.Wildcard {
			name += "+"
		}
		return []string{"-i " + name}
	}
	var list []string
	for _, prefix := range p.CIDRs {
		if prefix.Bits() == 0 {
			return []string{""}
		}
		list = append(list, InRange("-s ", prefix))
	}
	return list
}

func protocol(p model.Protocol) string { return "-p " + p.String() }

// toPort matches one destination port.
func toPort(p model.Protocol, port uint16) string {
	return protocol(p) + " -m " + p.String() + " --dport " + strconv.Itoa(int(port))
}

// toVIP matches packets to a frontend. A node port needs no match for the address: only packets
// to the node's addresses come to such a rule.
func toVIP(v model.VIP) string {
	if v.Addr.IsUnspecified() {
		return toPort(v.Protocol, v.Port)
	}
	return "-d " + host(v.Addr) + " " + toPort(v.Protocol, v.Port)
}

// Marked matches packets with these bits in the mark.
func Marked(bits uint32) string { return fmt.Sprintf("-m mark --mark %#x/%#x", bits, bits) }

// SetMark is the target that clears the bits of mask in the packet mark, and then exchanges
// those of value. iptables-save prints --or-mark and --xor-mark so.
func SetMark(value, mask uint32) string {
	return fmt.Sprintf("-j MARK --set-xmark %#x/%#x", value, mask)
}

// Masquerade is the target that replaces the source address by the node's.
func Masquerade(randomFully bool) string {
	if randomFully {
		return "-j MASQUERADE --random-fully"
	}
	return "-j MASQUERADE"
}

// RejectRules refuse a connection. ICMP errors are rate-limited by the kernel (net.ipv4.icmp_ratelimit): with them
// alone, half of a burst of refused connections would time out.
func RejectRules(f model.Family) []string {
	icmp := "icmp-port-unreachable"
	if f == model.IPv6 {
		icmp = "icmp6-port-unreachable"
	}
	return []string{
		protocol(model.TCP) + " -j REJECT --reject-with tcp-reset",
		"-j REJECT --reject-with " + icmp,
	}
}
