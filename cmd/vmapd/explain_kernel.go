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
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
)

// compareWithKernel compares what the kernel has of a snapshot, as doctor does. Rules of others are not looked at.
func (a *answers) compareWithKernel(ctx context.Context, s *model.Snapshot, d model.Decision) explain.Daemon {
	if d.Dest.Addr().IsLoopback() && a.plane.userspace == nil {
		return explain.Daemon{NotCompared: "a listener of vmapd answers on loopback, not a rule"}
	}
	f := model.FamilyOf(d.Dest.Addr())
	out := explain.Daemon{Compared: a.plane.compared(d)}
	list, count, err := a.plane.differences(ctx, f, s)
	if err != nil {
		return explain.Daemon{NotCompared: err.Error()}
	}
	if a.plane.userspace != nil {
		to := " " + model.VIP{Addr: d.Dest.Addr(), Protocol: d.Protocol, Port: d.Dest.Port()}.String() + " "
		list = slices.DeleteFunc(list, func(line string) bool { return !strings.Contains(line, to) })
		count = len(list)
	}
	if count > 0 {
		out.Kernel = list[0]
		if count > 1 {
			out.Kernel += fmt.Sprintf(" and %d more", count-1)
		}
	}
	if what := a.plane.known(s.Family(f), d); what != "" {
		out.NotCompared = what
	}
	if a.plane.userspace != nil {
		return out
	}
	if out.Remembered, err = a.remembered(d); err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "the kernel's session affinity can't be read for an explanation", slog.Any("err", err))
	}
	return out
}

// compared says what of the kernel is compared for a decision.
func (p *dataplane) compared(d model.Decision) string {
	switch {
	case p.userspace != nil:
		return "vmapd's listener at " + model.VIP{Addr: d.Dest.Addr(), Protocol: d.Protocol, Port: d.Dest.Port()}.String()
	case p.iptables != nil:
		return "vmapd's rules in iptables"
	case p.ipvs != nil:
		return "the virtual servers, the ipsets, and vmapd's rules in iptables"
	case d.Dest.Addr().Is4():
		return "nftables table ip vmapd"
	}
	return "nftables table ip6 vmapd"
}

// known returns what the backend does otherwise than decided by its nature, "" if nothing.
func (p *dataplane) known(s *model.FamilySnapshot, d model.Decision) string {
	if p.ipvs != nil {
		for _, known := range ipvs.Differences {
			if known.Concerns(s, d) {
				return "the backend IPVS differs by its nature: " + known.What
			}
		}
	}
	if p.userspace != nil {
		for _, known := range userspace.Differences {
			if known.Concerns(s, d) {
				return "the backend userspace differs by its nature: " + known.What
			}
		}
	}
	return ""
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
