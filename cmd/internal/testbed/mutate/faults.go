package main

var faults = []fault{
	// nft: differences and slots.
	{"nft/compile/slots.go", "if i >= end || len(left)", "if i > end || len(left)", "the last slot of a Service with less endpoints than before stays: off by one"},
	{"nft/compile/slots.go", "\t\tn := uint32(0)\n\t\tfor a := range r.bySlot", "\t\tn := uint32(1)\n\t\tfor a := range r.bySlot", "slots of a new Service begin at 1: off by one"},
	{
		"nft/compile/slots.go", "old.Slots(l) != now.Slots(l) || !slices.Equal(old.Endpoints, now.Endpoints)", "old.Slots(l) != now.Slots(l)",
		"a lookup table stays as it was though endpoints change",
	},
	{"nft/compile/slots.go", "after.slots[l] = append(after.slots[l], slot{i, b})", "after.slots[l] = append(after.slots[l], slot{i, a})", "a slot that changes keeps its endpoint"},
	{"nft/batch/diff.go", "\t\tc.Old.Elements(gone.of(c.Old.Port))\n", "", "addresses and endpoints that go are not deleted"},
	{"nft/batch/diff.go", "\tb.DeleteChains = append(b.DeleteChains, slices.Sorted(maps.Keys(byName))...)\n", "\t_ = slices.Sorted(maps.Keys(byName))\n", "chains that go are not deleted"},
	{"nft/batch/diff.go", "\t\t\tb.DeleteSets = append(b.DeleteSets, s.Name)\n", "\t\t\t_ = s\n", "sets that go are not deleted"},
	{"nft/batch/diff.go", "\t\tb.Purge = append(b.Purge, c.Purge...)\n", "", "no purge: clients of endpoints that are gone stay remembered"},
	{"nft/compile/affinity.go", "\treturn len(left) > 0\n", "\treturn len(left) < 0\n", "clients are forgotten only if the timeout changes"},
	// nft/kernel: messages and their answers.
	{"nft/kernel/conn.go", "\t\tif first == nil {\n\t\t\tfirst = err\n\t\t}\n", "\t\t_ = err\n", "acknowledgements are ignored"},
	{"nft/kernel/backend.go", "st.have, st.left, st.refusal, st.purges = nil, nil, nil, nil\n\treturn &model", "st.left, st.refusal, st.purges = nil, nil, nil\n\treturn &model", "the state before a failure is believed after it"},
	{"nft/kernel/backend.go", "\tfor _, st := range b.families {\n\t\tst.have = nil\n\t}\n}\n\n// Apply", "}\n\n// Apply", "Resync does nothing"},
	{"nft/kernel/backend.go", "\tb.conn = c\n\tfor _, st := range b.families {\n\t\tst.owned = false\n", "\tb.conn = c\n\tfor _, st := range b.families {\n", "a table is not claimed again over another connection"},
	{"nft/kernel/read.go", "err != nil || !c.interrupted {", "err != nil || true {", "a list that was cut short is believed"},
	{"nft/kernel/transaction.go", "\tt.deletions(changes)\n", "", "a batch leaves what it must delete"},
	{"nft/kernel/errors.go", "return isReply(err) && !isTransient(err)", "return isReply(err)", "want of memory at the start is taken for a missing feature"},
	{"nft/kernel/backend.go", "\t\terr, st.refusal.s = st.refusal.err(st.family), s\n", "\t\terr, st.refusal.s = nil, s\n", "a refused Service is no error, and stays left out"},
	// sync: the loop and the sources.
	{"sync/reconcile/loop.go", "\t\t\t\tretry = time.After(max(pause, failed))\n", "", "a round that failed is not tried again"},
	{"sync/reconcile/loop.go", "\tl.backoff = wait.Backoff{Duration: firstRetry,", "\tl.backoff = wait.Backoff{Duration: time.Microsecond,", "a round that failed is tried again at once"},
	{"sync/reconcile/loop.go", "restoring them\")\n\t\t\tl.full, l.repair = true, true\n\t\t\tl.Backend.Resync()\n", "restoring them\")\n\t\t\tl.full, l.repair = true, true\n", "a change by another program is not compared"},
	{"sync/reconcile/state.go", "\tif s.missing > 0 {\n", "\tif s.missing > 1 {\n", "rules are made before all objects are known"},
	// model.
	{"model/endpoints.go", "\tcase p == Local && !c.has(local):\n", "\tcase p == Local && required == 0:\n", "endpoints of other nodes serve a Local traffic policy"},
	{"model/endpoints.go", "\tcase !some.has(ready):\n", "\tcase required[Cluster] == draining:\n", "endpoints that end are used in place of ready ones"},
	{"model/builder.go", "\t\t\tr.slices = slices.Insert(r.slices, i, s)\n\t\t\tb.markDirty(r)\n", "\t\t\tr.slices = slices.Insert(r.slices, i, s)\n", "a new EndpointSlice changes nothing"},
	{"model/builder.go", "\t\tb.markClaimants(v, b.claims.remove(v, s))\n", "\t\tb.claims.remove(v, s)\n", "a frontend that becomes free is not given to the next Service that claims it"},
	// legacy/iptables.
	{"legacy/iptables/diff.go", "\t\t\tb.delete(c.Key.chain(have.Family, c.Old))\n", "", "iptables: chains of addresses that go stay"},
	{"legacy/iptables/diff.go", "if i >= 0 && bytes.Equal(have[i].text, c.text) {", "if i >= 0 && bytes.Equal(have[i].text, have[i].text) {", "iptables: a chain whose rules change stays as it was"},
}
