package ipvs

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// ParseReals reads the real servers from the kernel's file of virtual servers, /proc/net/ip_vs, by the virtual servers
// of a family: without other programs' by packet marks. A weight is -1 if the real server does not use NAT. The file
// has all of them at once; netlink has them for one virtual server after the other.
//
//	TCP  AC1E0029:0050 rr persistent 2700000 FFFFFFFF
//	  -> 0A000002:1F90      Masq    1      0          0
//	UDP  [fd00:0172:0030:0000:0000:0000:0000:0029]:0035 mh
func ParseReals(r io.Reader, f model.Family) (map[Key]map[netip.AddrPort]Real, error) {
	servers := map[Key]map[netip.AddrPort]Real{}
	var now map[netip.AddrPort]Real // nil: another program's
	in := bufio.NewScanner(r)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if len(words) < 3 || words[0] == "IP" || words[0] == "Prot" || words[1] == "RemoteAddress:Port" {
			continue
		}
		if words[0] == "FWM" {
			now = nil
			continue
		}
		at, err := parseAddrPort(words[1])
		if err != nil || words[0] == "->" && len(words) < 6 {
			return nil, fmt.Errorf("line %q of the virtual servers is unknown", in.Text())
		}
		if words[0] == "->" {
			if now != nil {
				now[at] = realOf(words)
			}
			continue
		}
		protocol, err := model.ParseProtocol(words[0])
		if err != nil {
			return nil, fmt.Errorf("line %q of the virtual servers: %w", in.Text(), err)
		}
		if now = nil; model.FamilyOf(at.Addr()) == f {
			now = map[netip.AddrPort]Real{}
			servers[Key{Addr: at.Addr(), Protocol: protocol, Port: at.Port()}] = now
		}
	}
	return servers, in.Err()
}

// A Real is a real server as the kernel has it.
type Real struct {
	Weight int  // -1 if it does not use NAT
	Idle   bool // it has no connection, active or inactive
}

func realOf(words []string) Real {
	w, err := strconv.Atoi(words[3])
	if err != nil || words[2] != "Masq" {
		w = -1
	}
	return Real{Weight: w, Idle: words[4] == "0" && words[5] == "0"}
}

// parseAddrPort reads an address and a port, IPv4's as hexadecimal digits.
func parseAddrPort(s string) (a netip.AddrPort, err error) {
	host, digits := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		host, digits = s[:i], s[i+1:]
	}
	port, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return a, err
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		return netip.AddrPortFrom(addr, uint16(port)), err
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 {
		return a, fmt.Errorf("%q is no address", host)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), uint16(port)), nil
}
