package userspace

import (
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Resets is the difference that scenarios try.
const Resets = "a TCP connection that is to be dropped, as loadBalancerSourceRanges or a policy Local say, is " +
	"accepted and reset; a Service without endpoints refuses it, and datagrams, too"

// Differences lists those that concern single new connections without a history. The page docs/internals.md has all.
var Differences = []model.Difference{
	{What: "SCTP is not served", Concerns: isSCTP},
	{What: Resets, Concerns: resets},
	{What: "on the address of a Service, ports that no Service has are refused, and neither routed on nor, " +
		"inside a ServiceCIDR, dropped; a process of the node that listens on all addresses answers there",
		Concerns: otherPort},
	{What: "an external or load-balancer address that is a pod's is not served", Concerns: isPods},
	{What: "an endpoint at the address and port of another Service, or of the same one, is never used: vmapd " +
		"would connect to itself for ever", Concerns: loops},
}

func isSCTP(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Protocol == model.SCTP && d.Frontend != nil
}

func resets(_ *model.FamilySnapshot, d model.Decision) bool {
	return d.Verdict == model.Dropped && d.Frontend != nil &&
		(d.Protocol == model.TCP || d.Frontend.Action == model.Reject)
}

func otherPort(s *model.FamilySnapshot, d model.Decision) bool {
	_, ours := wantOf(s).addrs[d.Dest.Addr()]
	return ours && (d.Verdict == model.NotOurs || d.Why == model.UnallocatedAddr)
}

func isPods(s *model.FamilySnapshot, d model.Decision) bool {
	return d.Frontend != nil && d.Frontend.Kind != model.NodePort &&
		!slices.Contains(s.NodeAddrs, d.Dest.Addr()) && !onDevice(s, *d.Frontend)
}

func loops(s *model.FamilySnapshot, d model.Decision) bool {
	w := wantOf(s)
	return slices.ContainsFunc(d.Targets, func(t model.Target) bool { return w.isPlace(t.Addr, d.Protocol) })
}
