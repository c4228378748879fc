package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// compareWithKernel runs the connection of a decision through the rules that the kernel has now.
func (a *answers) compareWithKernel(ctx context.Context, s *model.Snapshot, d model.Decision) explain.Daemon {
	if d.Dest.Addr().IsLoopback() {
		return explain.Daemon{NotCompared: "a listener of vmapd answers on loopback, not a rule"}
	}
	var out explain.Daemon
	var got modeltest.Outcome
	var err error
	switch {
	case a.plane.nft != nil:
		out.Compared = "nftables table " + comparedTable(d)
		got, err = a.throughNFT(s, d)
	case a.plane.iptables != nil:
		out.Compared = "the rules that iptables-save lists, also those of others"
		got, err = a.throughIPTables(ctx, s, d)
	default:
		return a.compareWithIPVS(d)
	}
	if err != nil {
		return explain.Daemon{NotCompared: err.Error()}
	}
	kernel := explain.Outcome{Verdict: got.Verdict, To: map[netip.AddrPort]bool{}}
	for to, arrival := range got.To {
		kernel.To[to] = arrival.Masquerade
	}
	if !kernel.Equal(explain.OutcomeOf(d)) {
		out.Kernel = kernel.String()
	}
	return out
}

// compareWithIPVS compares the real servers of the destination's virtual server. Connections of the
// node's own clients to external addresses are sent by packet marks and not by the destination, and
// others are refused or dropped by rules: these are not compared.
func (a *answers) compareWithIPVS(d model.Decision) explain.Daemon {
	if d.Verdict != model.Forwarded || d.Why != model.HasEndpoints {
		return explain.Daemon{NotCompared: "with the backend IPVS, only the virtual servers of forwarded connections are"}
	}
	v := model.VIP{Addr: d.Dest.Addr(), Protocol: d.Protocol, Port: d.Dest.Port()}
	out := explain.Daemon{Compared: "the real servers of the virtual server " + v.String()}
	list, err := a.plane.ipvs.RealServers(v)
	kernel := explain.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]bool{}}
	for _, r := range list {
		kernel.To[r] = false
	}
	want := explain.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]bool{}}
	for _, t := range d.Targets {
		want.To[t.Addr] = false // IPVS does not tell who is masqueraded
	}
	switch {
	case err != nil:
		return explain.Daemon{NotCompared: err.Error()}
	case len(list) == 0:
		out.Kernel = "not sent to any endpoint"
	case !kernel.Equal(want):
		out.Kernel = kernel.String()
	}
	return out
}

func comparedTable(d model.Decision) string {
	if d.Dest.Addr().Is4() {
		return "ip vmapd"
	}
	return "ip6 vmapd"
}

func (a *answers) throughNFT(s *model.Snapshot, d model.Decision) (modeltest.Outcome, error) {
	f := model.FamilyOf(d.Dest.Addr())
	table, options, err := a.plane.nft.Table(f, s)
	switch {
	case err != nil:
		return modeltest.Outcome{}, err
	case options == nil:
		return modeltest.Outcome{}, fmt.Errorf("the kernel has no %v", f)
	case table == nil:
		return modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{d.Dest: {}}}, nil
	}
	sim, err := nftsim.NewTable(table, s.Family(f).NodeAddrs...)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	o, err := sim.Run(d.Connection)
	return o.Outcome, err
}

func (a *answers) throughIPTables(ctx context.Context, s *model.Snapshot, d model.Decision) (modeltest.Outcome, error) {
	f := model.FamilyOf(d.Dest.Addr())
	text, err := a.plane.iptables.Listing(ctx, f)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	tables, _, err := iptsim.ReadSaved(f, text)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	own := s.Family(f).NodeAddrs
	sim, err := iptsim.NewOn(iptsim.Node{IsLocal: func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a) }}, tables)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	o, err := sim.Run(d.Connection)
	return o.Outcome, err
}
