package iptables

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Destinations returns the frontends of a protocol in our listed rules, with their endpoints.
// Those of a node port have its addresses. Connections that began under these rules went there.
func (s *Saved) Destinations(p model.Protocol) map[model.VIP][]netip.AddrPort {
	found := map[model.VIP][]netip.AddrPort{}
	nodePorts := map[uint16][]netip.AddrPort{}
	var nodePortAddrs []netip.Addr
	for o := range s.ourNAT() {
		addr, isHost := o.host()
		port, err := strconv.ParseUint(o["--dport"], 10, 16)
		switch {
		case isHost && o["-g"] == nodePortsChain:
			nodePortAddrs = append(nodePortAddrs, addr)
		case o["-p"] != p.String() || err != nil || o["-g"] == "": // also a range of ports, within a tree
		case isHost:
			vip := model.VIP{Addr: addr, Protocol: p, Port: uint16(port)}
			found[vip] = s.translations(o["-g"], map[string]bool{})
		case o["-d"] == "":
			nodePorts[uint16(port)] = s.translations(o["-g"], map[string]bool{})
		}
	}
	for port, endpoints := range nodePorts {
		for _, a := range nodePortAddrs {
			vip := model.VIP{Addr: a, Protocol: p, Port: port}
			if _, ok := found[vip]; !ok { // it goes first, as with packets
				found[vip] = endpoints
			}
		}
	}
	return found
}

// ruleOptions are the options of a rule that have one value, by name.
type ruleOptions map[string]string

// host returns the destination if it is a single address.
func (o ruleOptions) host() (netip.Addr, bool) {
	p, err := netip.ParsePrefix(o["-d"])
	return p.Addr(), err == nil && p.IsSingleIP()
}

// ourNAT yields the options of the rules in our chains of the nat table.
func (s *Saved) ourNAT() iter.Seq[ruleOptions] {
	return func(yield func(ruleOptions) bool) {
		for name := range s.Chains(nat.String()) {
			if !IsOurs(name) {
				continue
			}
			for _, rule := range s.Rules(nat.String(), name) {
				if !yield(optionsOf(rule)) {
					return
				}
			}
		}
	}
}

func optionsOf(rule string) ruleOptions {
	o := ruleOptions{}
	words := strings.Fields(rule)
	for i, w := range words[:max(0, len(words)-1)] {
		if strings.HasPrefix(w, "-") {
			o[w] = words[i+1]
		}
	}
	return o
}

// translations returns the endpoints to which a chain, or one to which it leads, translates.
func (s *Saved) translations(chain string, seen map[string]bool) []netip.AddrPort {
	if seen[chain] {
		return nil
	}
	seen[chain] = true
	var list []netip.AddrPort
	for _, rule := range s.Rules(nat.String(), chain) {
		o := optionsOf(rule)
		if e, err := netip.ParseAddrPort(o["--to-destination"]); err == nil && !slices.Contains(list, e) {
			list = append(list, e)
		}
		for _, to := range []string{o["-g"], o["-j"]} {
			if IsOurs(to) {
				list = append(list, s.translations(to, seen)...)
			}
		}
	}
	return list
}
