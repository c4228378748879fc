package iptables

// sharedChains returns the chains that belong to no single service port, without those of the trees.
func (r *Ruleset) sharedChains() []chain {
	return []chain{
		r.markOutside(), r.postrouting(), r.masquerade(),
		r.filter(), r.forward(), r.accept(), r.reject(), r.dropOutside(),
	}
}

// markOutside marks connections to cluster IPs that are to be masqueraded. Its rules match
// pods, and never the opposite: in OUTPUT there is no interface, and whether "! -i cbr0" holds
// there depends on the variant and on the kernel.
func (r *Ruleset) markOutside() chain {
	c := chain{table: nat, name: outsideChain}
	switch {
	case r.MasqueradeAll:
		c.add("", r.options.setMark())
	case r.Pods.Known():
		for _, m := range FromPods(r.Pods) {
			if c.add(m, Return); m == "" {
				return c
			}
		}
		c.add("", r.options.setMark())
	}
	return c
}

func (r *Ruleset) postrouting() chain {
	c := chain{table: nat, name: postroutingChain}
	c.add(Marked(r.options.mark()), "-g "+masqueradeChain)
	c.add(isDNATed, "-g "+hairpinChain)
	return c
}

// masquerade clears the mark first, because a packet that then goes through a tunnel passes here again.
func (r *Ruleset) masquerade() chain {
	c := chain{table: nat, name: masqueradeChain}
	c.add("", SetMark(r.options.mark(), 0))
	c.add("", Masquerade(r.options.RandomFully))
	return c
}

// filter decides about new connections. Those with DNAT, whichever program's, return at once; a connection to a
// Service without DNAT is refused or dropped.
func (r *Ruleset) filter() chain {
	c := chain{table: filter, name: filterChain}
	c.add(isDNATed, Return)
	c.add("", "-j "+servicesChain)
	for _, p := range r.ServiceCIDRs {
		c.add(Join(InRange("-d ", p), NotToNode), Drop)
	}
	return c
}

// forward refuses, and accepts nothing: other programs' rules decide about what passes. Established connections come
// first: nearly all packets belong to one.
func (r *Ruleset) forward() chain {
	c := chain{table: filter, name: forwardChain}
	c.add(IsEstablished, Return)
	if r.DropInvalid {
		// A segment outside the window, say, would reach the client with the pod's own
		// address, and the client would reset the connection.
		c.add(IsInvalid, Drop)
	}
	c.add(IsNew, "-j "+filterChain)
	return c
}

// accept accepts packets of Services even if the policy is DROP, as kube-proxy does.
func (r *Ruleset) accept() chain {
	c := chain{table: filter, name: acceptChain}
	c.add(IsEstablished, Accept)
	c.add(Marked(r.options.mark()), Accept)
	return c
}

// reject refuses, but not a packet of a connection that began while there were no rules for it: it meets no rule of the
// table nat until the loop makes the kernel forget it, and the packet that is sent again then is translated. What is
// refused is never confirmed.
func (r *Ruleset) reject() chain {
	c := chain{table: filter, name: rejectChain}
	c.add(wasSeen, Drop)
	for _, rule := range RejectRules(r.Family) {
		c.add("", rule)
	}
	return c
}

// dropOutside spares pods and the node: they have an endpoint, and come here only if its
// address and port are the very ones that they asked for, see filterRule.
func (r *Ruleset) dropOutside() chain {
	c := chain{table: filter, name: dropChain}
	for _, m := range FromPods(r.Pods) {
		if c.add(m, Return); m == "" {
			return c
		}
	}
	c.add(FromNode, Return)
	c.add("", Drop)
	return c
}
