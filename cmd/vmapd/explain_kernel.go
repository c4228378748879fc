package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/ipvs/ipvssim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// compareWithKernel runs the connection of a decision through the rules that the kernel has now.
func (a *answers) compareWithKernel(ctx context.Context, s *model.Snapshot, d model.Decision) explain.Daemon {
	if a.plane.userspace != nil {
		return a.compareWithListeners(d)
	}
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
		out.Compared = "the virtual servers, the ipsets, and the rules that iptables-save lists, also those of others"
		got, err = a.throughIPVS(ctx, s, d)
	}
	if err != nil {
		return explain.Daemon{NotCompared: err.Error()}
	}
	if out.Remembered, err = a.remembered(d); err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "the kernel's session affinity can't be read for an explanation", slog.Any("err", err))
	}
	kernel := explain.Outcome{Verdict: got.Verdict, To: map[netip.AddrPort]bool{}}
	for to, arrival := range got.To {
		kernel.To[to] = arrival.Masquerade
	}
	if !kernel.Equal(explain.OutcomeOf(d)) {
		out.Kernel = kernel.String()
		if what := a.known(s, d); what != "" {
			out.Kernel, out.NotCompared = "", what
		}
	}
	return out
}

// known returns what the backend does otherwise than decided by its nature, "" if nothing.
func (a *answers) known(s *model.Snapshot, d model.Decision) string {
	if a.plane.ipvs == nil {
		return ""
	}
	for _, known := range ipvs.Differences {
		if known.Concerns != nil && known.Concerns(s.Family(model.FamilyOf(d.Dest.Addr())), d) {
			return "the backend IPVS differs by its nature: " + known.What
		}
	}
	return ""
}

// throughIPVS runs the connection of a decision through what the kernel has of a family. Rules of others
// that look into ipsets are left out.
func (a *answers) throughIPVS(ctx context.Context, s *model.Snapshot, d model.Decision) (modeltest.Outcome, error) {
	f := model.FamilyOf(d.Dest.Addr())
	content, text, err := a.plane.ipvs.Content(ctx, f)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	tables, _, err := iptsim.ReadSaved(f, withoutSets(text, "VMAPD"))
	if err != nil {
		return modeltest.Outcome{}, err
	}
	sim, err := ipvssim.NewListed(content, tables, s.Family(f).NodeAddrs...)
	if err != nil {
		return modeltest.Outcome{}, err
	}
	o, err := sim.Run(d.Connection)
	return o.Outcome, err
}

// withoutSets returns a listing without the rules that look into ipsets, but for sets of a prefix.
func withoutSets(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if _, set, ok := strings.Cut(line, "--match-set "); ok && (prefix == "" || !strings.HasPrefix(set, prefix)) {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// remembered returns the endpoint that the kernel remembers for a client, or nil if the Service has no
// session affinity, and with IPVS.
func (a *answers) remembered(d model.Decision) (*explain.Remembered, error) {
	if d.Verdict != model.Forwarded || d.Port == nil || d.Port.Affinity == 0 {
		return nil, nil
	}
	var to netip.AddrPort
	var left time.Duration
	var ok bool
	var err error
	switch {
	case a.plane.nft != nil:
		list := d.Frontend.TrafficPolicy
		if d.Why == model.FromPodInside || d.Why == model.FromNodeInside {
			list = model.Cluster
		}
		to, left, ok, err = a.plane.nft.Remembered(d.Port.Name, list, d.Source)
	case a.plane.iptables != nil:
		var endpoints []netip.AddrPort
		for _, t := range d.Targets {
			endpoints = append(endpoints, t.Addr)
		}
		to, left, ok, err = a.plane.iptables.Remembered(d.Port, endpoints, d.Source)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &explain.Remembered{}
	if ok {
		r.Endpoint, r.Left = to.String(), left.Round(time.Second)
		r.Until = time.Now().Add(left).UTC().Truncate(time.Second)
		r.Used = slices.ContainsFunc(d.Targets, func(t model.Target) bool { return t.Addr == to })
	}
	return r, nil
}

func comparedTable(d model.Decision) string {
	if d.Dest.Addr().Is4() {
		return "ip vmapd"
	}
	return "ip6 vmapd"
}

func (a *answers) throughNFT(s *model.Snapshot, d model.Decision) (modeltest.Outcome, error) {
	f := model.FamilyOf(d.Dest.Addr())
	table, want, err := a.plane.nft.Table(f, s)
	switch {
	case err != nil:
		return modeltest.Outcome{}, err
	case want == nil:
		return modeltest.Outcome{}, fmt.Errorf("the kernel has no %v", f)
	case table == nil:
		return modeltest.Outcome{Verdict: model.Forwarded, To: map[netip.AddrPort]modeltest.Arrival{d.Dest: {}}}, nil
	}
	sim, err := nftsim.New(table, s.Family(f).NodeAddrs...)
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
	tables, _, err := iptsim.ReadSaved(f, withoutSets(text, ""))
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
