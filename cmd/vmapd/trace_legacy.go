package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// legacyDrops finds the rules of iptables-legacy, which the kernel does not trace, that drop a packet where it
// vanished. If it is certain that one does, by is that one; further ones may.
func legacyDrops(at trace.Vanished) (by string, further []string, err error) {
	sets, further, err := legacyRules(at.Packet)
	if err != nil {
		return "", nil, err
	}
	p := legacyPacket(at.Packet, at.In)
	p.Out, p.State, p.Translated, p.Orig = interfaceOf(at.Out), firewall.StateNew, at.Translated, at.Destination
	if at.IsAnswer {
		p.State = firewall.StateEstablished
	}
	out := firewall.Walk(sets, firewall.Hook(at.Hook), math.MinInt, math.MaxInt, &p, nil)
	for _, d := range out.Drops {
		if d.Certain && out.Dropped() {
			return legacyPlace(d.Place), nil, nil
		}
		further = append(further, fmt.Sprintf("%s, may have dropped it.", legacyPlace(d.Place)))
	}
	return "", further, nil
}

// legacyUntracks finds the rules of iptables-legacy that keep a packet from being tracked, as legacyDrops does.
func legacyUntracks(u trace.Unexplained) (by string, further []string, err error) {
	sets, further, err := legacyRules(u.Packet)
	if err != nil {
		return "", nil, err
	}
	p := legacyPacket(u.Packet, u.In)
	const conntrack = -200
	for _, d := range firewall.Walk(sets, firewall.Hook(u.Hook), math.MinInt, conntrack, &p, nil).Untracks {
		if d.Certain {
			return legacyPlace(d.Place), nil, nil
		}
		further = append(further, fmt.Sprintf("%s, may have kept it from being tracked.", legacyPlace(d.Place)))
	}
	return "", further, nil
}

// legacyRules reads the tables of iptables-legacy that a packet meets, and says which were not read.
func legacyRules(p others.Packet) (sets []firewall.Ruleset, unread []string, err error) {
	tables, large, err := host.LegacyTables(model.FamilyOf(p.Dest.Addr()), mostRules)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range large {
		text := fmt.Sprintf("The table %s of iptables-legacy has more rules than vmapd reads (%d).", name, mostRules)
		unread = append(unread, text)
	}
	for _, t := range tables {
		set, err := firewall.FromXTables(t)
		if err != nil {
			return nil, nil, err
		}
		sets = append(sets, set)
	}
	return sets, unread, nil
}

// legacyPacket is a packet as firewall has it.
func legacyPacket(p others.Packet, in string) firewall.Packet {
	return firewall.Packet{
		IPv6: p.Dest.Addr().Is6(), Src: p.Source.Addr(), Dst: p.Dest.Addr(), Proto: uint8(p.Protocol),
		SrcPort: p.Source.Port(), DstPort: p.Dest.Port(), In: interfaceOf(in),
	}
}

func legacyPlace(p firewall.Place) string {
	if strings.HasPrefix(p.Chain, "VMAPD-") {
		return p.String() + ", which is vmapd's"
	}
	return p.String() + ", which is not vmapd's"
}

// interfaceOf is the name as firewall has it.
func interfaceOf(name string) string {
	if name == "" {
		return firewall.NoInterface
	}
	return name
}
