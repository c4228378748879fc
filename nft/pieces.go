package nft

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// NewTable is DiffTable without a table. If the table has more than about size elements, the batch has none of them:
// [Batch.Pieces] makes them, piece by piece. A list of all would take twice the memory of everything else.
func NewTable(want *Ruleset, size int) *Batch {
	if want.weight() <= size {
		return DiffTable(nil, want)
	}
	b := newBatch(want.Family)
	b.CreateTable, b.large = true, want
	b.diffObjects(&Table{Family: want.Family}, want)
	return b
}

// weight is about how many elements there are.
func (r *Ruleset) weight() int {
	n := 0
	for sp := range r.snapshot.ServicePorts() {
		for _, fe := range sp.Frontends {
			n += 1 + slotCount(sp, fe.TrafficPolicy)
		}
	}
	return n
}

// Pieces yields the transactions that carry out a batch, but for the deletions of chains and sets.
//
// A new table comes in pieces of size operations or a little more, if it has more: during a transaction the kernel does
// nothing else for the table, and it needs memory for each operation. The Services come with all of their ports and
// addresses at once, also with their cluster IPs, to whose other ports connections are refused; those of the cluster's
// API server and DNS are first, then all endpoints. The ServiceCIDRs are last, whose other addresses are dropped.
//
// A table that exists changes in one transaction, so that each packet meets the rules from before it or those from
// after. New sets and chains come ahead of it, to which nothing leads yet, for two reasons. A packet keeps the
// generation of rules with which it entered the base chain, but finds an element that is committed meanwhile: a new
// chain to which it leads would be empty, and the packet leave untranslated (nft_do_chain). And the kernel walks the
// whole map for each chain that begins to look into it (nf_tables_bind_set).
//
// A packet between two hooks during a commit meets the old rules of one and the new rules of the other: while its
// Service's traffic policy changes, it may be dropped once, or keep its client's address.
func (b *Batch) Pieces(size int) iter.Seq[*Batch] {
	return func(yield func(*Batch) bool) {
		switch {
		case b.large != nil:
			b.largePieces(size, yield)
		case b.CreateTable: // no packet has met the table
			yield(b)
		default:
			if ahead := b.ahead(); ahead.Empty() || yield(ahead) {
				yield(b)
			}
		}
	}
}

// ahead takes new sets from the batch, and new chains that no hook enters, or that remember clients, of which there are
// none yet.
func (b *Batch) ahead() *Batch {
	isAhead := func(c Chain) bool {
		return b.newChains[c.Name] && (c.Hook == NoHook || c.Name == rememberArrival || c.Name == rememberOutput)
	}
	ahead := &Batch{Family: b.Family, AddSets: b.AddSets, AddFlowtables: b.AddFlowtables, newChains: b.newChains}
	for _, c := range b.SetChains {
		if isAhead(c) {
			ahead.SetChains = append(ahead.SetChains, c)
		}
	}
	b.AddSets, b.AddFlowtables = nil, nil
	b.SetChains = slices.DeleteFunc(b.SetChains, isAhead)
	return ahead
}

// maxPieces bounds into how many pieces the frontends of a table are divided: for each,
// the kernel validates all verdicts that the table has by then (nft_table_validate).
const maxPieces = 64

// largePieces yields the pieces of a large new table.
func (b *Batch) largePieces(size int, yield func(*Batch) bool) {
	r := b.large
	urgent, others := r.byUrgency()
	p := pieces{family: b.Family, yield: yield, known: map[netip.Addr]bool{}}
	first := b.ahead()
	first.CreateTable = true
	p.give(first)

	bases := &Batch{Family: b.Family, SetChains: b.SetChains, newChains: b.newChains}
	settingsElements(r.snapshot.Settings, func(set string, e Element) {
		if set == NodePortIPs {
			p.add(set, ElementOp{Element: e})
		}
	})
	for a := range r.snapshot.Hairpins() { // an endpoint could not connect to itself without
		p.add(Hairpin, ElementOp{Element: hairpinElement(a)})
	}
	for _, sp := range urgent {
		r.portElements(sp, nil, p.of(sp))
		p.clusterIP(clusterIPOf(sp))
	}
	bases.Add = p.take()
	p.give(bases)

	for _, sp := range others {
		if p.stopped {
			return
		}
		r.portElements(sp, nil, p.slotsOf(sp))
		p.flush(size)
	}
	p.flush(1)
	for i, sp := range others {
		if p.stopped {
			return
		}
		r.portElements(sp, &slotDelta{other: sp}, p.of(sp)) // as if its slots were there already: they are
		p.clusterIP(clusterIPOf(sp))
		if i+1 == len(others) || clusterIPOf(others[i+1]) != clusterIPOf(sp) {
			p.flush(max(size, len(others)/maxPieces))
		}
	}
	p.flush(1)
	for v := range r.snapshot.ServiceEndpoints() {
		p.add(ServiceEndpoints, ElementOp{Element: endpointElement(v)})
		p.flush(size)
	}
	for a := range r.snapshot.ClusterIPs() {
		p.clusterIP(a)
	}
	settingsElements(r.snapshot.Settings, func(set string, e Element) {
		if set == ServiceCIDRs {
			p.add(set, ElementOp{Element: e})
		}
	})
	p.flush(1)
}

// byUrgency returns the service ports of Services that must come first, and all others. An address of the node that is
// a Service's has priority over node ports of others; and one may be the cluster IP of another Service.
func (r *Ruleset) byUrgency() (urgent, others []*model.ServicePort) {
	clusterIPs := map[netip.Addr]bool{}
	for a := range r.snapshot.ClusterIPs() {
		clusterIPs[a] = true
	}
	shared := func(fe model.Frontend) bool {
		return r.isOnNode(fe) || fe.Kind != model.ClusterIP && clusterIPs[fe.VIP.Addr]
	}
	first := map[netip.Addr]bool{}
	for sp := range r.snapshot.ServicePorts() {
		if isUrgent(sp) || slices.ContainsFunc(sp.Frontends, shared) {
			first[clusterIPOf(sp)] = true
		}
	}
	for sp := range r.snapshot.ServicePorts() {
		if first[clusterIPOf(sp)] {
			urgent = append(urgent, sp)
		} else {
			others = append(others, sp)
		}
	}
	slices.SortFunc(others, func(a, b *model.ServicePort) int { // those of one Service stand side by side
		return clusterIPOf(a).Compare(clusterIPOf(b))
	})
	return urgent, others
}

// clusterIPOf returns the cluster IP of a service port.
func clusterIPOf(sp *model.ServicePort) netip.Addr {
	for _, fe := range sp.Frontends {
		if fe.Kind == model.ClusterIP {
			return fe.VIP.Addr
		}
	}
	return netip.Addr{}
}

// isUrgent reports whether a service port is one of the API server or of the cluster's DNS,
// whose name is not fixed. OpenShift's DNS has a namespace of its own.
func isUrgent(sp *model.ServicePort) bool {
	if sp.Name.NamespacedName == (model.NamespacedName{Namespace: "default", Name: "kubernetes"}) {
		return true
	}
	const dns = 53
	return (sp.Name.Namespace == "kube-system" || sp.Name.Namespace == "openshift-dns") && sp.Name.Protocol != model.SCTP &&
		slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Port == dns })
}

// pieces collects elements for the next piece.
type pieces struct {
	family  model.Family
	yield   func(*Batch) bool
	stopped bool
	next    elements
	sizes   map[string]int // of the lists of the last piece: the next one is similar
	count   int
	known   map[netip.Addr]bool // cluster IPs that were added
}

func (p *pieces) add(set string, op ElementOp) {
	if p.next == nil {
		p.next = elements{}
	}
	if p.next[set] == nil && p.sizes[set] > 0 {
		p.next[set] = make([]ElementOp, 0, p.sizes[set])
	}
	p.next.add(set, op)
	p.count++
}

// clusterIP adds a cluster IP, if there is one and it was not added before.
func (p *pieces) clusterIP(a netip.Addr) {
	if a.IsValid() && !p.known[a] {
		p.known[a] = true
		p.add(ClusterIPs, ElementOp{Element: addrElement(a)})
	}
}

// of returns a function that adds an element of a service port.
func (p *pieces) of(sp *model.ServicePort) func(set string, e Element) {
	return func(set string, e Element) { p.add(set, ElementOp{e, sp}) }
}

// slotsOf returns a function that adds the slots of a service port, and nothing else.
func (p *pieces) slotsOf(sp *model.ServicePort) func(set string, e Element) {
	return func(set string, e Element) {
		if slices.Contains(slotSets[:], set) {
			p.add(set, ElementOp{e, sp})
		}
	}
}

// slotSets are the maps of endpoints.
var slotSets = [...]string{Endpoints, LocalEndpoints, NodePortEndpoints, NodePortLocalEndpoints}

// take returns what was collected.
func (p *pieces) take() []SetOps {
	ops := p.next.list()
	p.next, p.count, p.sizes = nil, 0, make(map[string]int, len(ops))
	for _, s := range ops {
		p.sizes[s.Set] = len(s.Ops) + len(s.Ops)/8
	}
	return ops
}

// flush gives a piece with what was collected, if that is enough.
func (p *pieces) flush(enough int) {
	if p.count >= enough {
		p.give(&Batch{Family: p.family, Add: p.take()})
	}
}

func (p *pieces) give(b *Batch) { p.stopped = p.stopped || !p.yield(b) }
