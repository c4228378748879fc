package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/firewall"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/trace"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/model"
)

// legacyDrops finds the rules of iptables-legacy, which the kernel does not trace, that drop a packet where it
// vanished. If it is certain that one does, by is that one; others may.
func legacyDrops(at trace.Vanished) (by string, others []string, err error) {
	f := model.FamilyOf(at.Packet.Dest.Addr())
	tables, large, err := host.LegacyTables(f, mostRules)
	if err != nil {
		return "", nil, err
	}
	for _, name := range large {
		others = append(others, fmt.Sprintf("The table %s of iptables-legacy has more rules than vmapd reads (%d).", name, mostRules))
	}
	var sets []firewall.Ruleset
	for _, t := range tables {
		set, err := firewall.FromXTables(t)
		if err != nil {
			return "", nil, err
		}
		sets = append(sets, set)
	}
	p := firewall.Packet{
		IPv6: f == model.IPv6, Src: at.Packet.Source.Addr(), Dst: at.Packet.Dest.Addr(), Proto: uint8(at.Packet.Protocol), DstPort: at.Packet.Dest.Port(),
		In: interfaceOf(at.In), Out: interfaceOf(at.Out), State: firewall.StateNew, Translated: at.Translated, Orig: at.Destination,
	}
	if at.IsAnswer {
		p.State = firewall.StateEstablished
	}
	out := firewall.Walk(sets, firewall.Hook(at.Hook), math.MinInt, math.MaxInt, &p, nil)
	for _, d := range out.Drops {
		whose := "which is not vmapd's"
		if strings.HasPrefix(d.Chain, "VMAPD-") {
			whose = "which is vmapd's"
		}
		if d.Certain && out.Dropped() {
			return fmt.Sprintf("%v, %s", d.Place, whose), nil, nil
		}
		others = append(others, fmt.Sprintf("%v, %s, may have dropped it.", d.Place, whose))
	}
	return "", others, nil
}

// interfaceOf is the name as firewall has it.
func interfaceOf(name string) string {
	if name == "" {
		return firewall.NoInterface
	}
	return name
}
