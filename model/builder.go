package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Builder collects objects, in any order, and makes snapshots of them. The cost of a snapshot depends on the changes
// since the one before. A Builder is not safe for concurrent use.
type Builder struct {
	config Config

	records   map[NamespacedName]*record        // by Service
	slices    map[NamespacedName]*endpointSlice // by their own name
	node      *Node
	nodeFacts nodeFacts // of the last Nodes that had them
	hostAddrs []netip.Addr
	cidrs     map[string][]netip.Prefix
	claims    claims
	remembers struct{ addrs, podCIDRs bool } // facts that the Node object has no longer, or not yet again

	dirty         []*record // for updateServices
	nodeProblems  []Problem // of parsing the Node
	settingsStale bool      // node, addresses or ServiceCIDRs changed
	problems      map[ObjectRef][]Problem
	problemsStale bool
	locality      locality
	addrScope     addrScope
	edit          *edit
	last          *Snapshot

	scratch []Candidate // of lists
}

// locality is the part of this node's state that decisions about Services depend on.
type locality struct {
	zone    string
	primary [len(Families)]netip.Addr // this node's
}

// nodeFacts are the parts of the Node object that traffic depends on. A Node that is deleted,
// or that registers again and lacks addresses or pod ranges, is still the same machine: the last
// known ones stay until there are others. A new process knows none.
type nodeFacts struct {
	NodeObject
	zone string
}

// NewBuilder returns a Builder without objects.
func NewBuilder(c Config) *Builder {
	c.Budgets, c.TableSize = c.Budgets.WithDefaults(), cmp.Or(c.TableSize, DefaultTableSize)
	b := &Builder{
		config:        c,
		records:       map[NamespacedName]*record{},
		slices:        map[NamespacedName]*endpointSlice{},
		cidrs:         map[string][]netip.Prefix{},
		claims:        claims{},
		problems:      map[ObjectRef][]Problem{},
		edit:          newEdit(c.DropInvalid),
		settingsStale: true,
		last:          new(Snapshot),
	}
	for _, f := range Families {
		b.last.families[f].Family = f
	}
	return b
}

// record returns the record of a Service, and makes one if there is none.
func (b *Builder) record(name NamespacedName) *record {
	r := b.records[name]
	if r == nil {
		name.Namespace = shared(name.Namespace)
		r = &record{name: name}
		b.records[name] = r
	}
	return r
}

// forget removes an empty record: clusters create and delete Services for years.
func (b *Builder) forget(r *record) {
	if !r.known && r.was == nil && len(r.slices) == 0 && !r.dirty {
		delete(b.records, r.name)
	}
}

// SetService adds or replaces a Service.
func (b *Builder) SetService(in Service) {
	r := b.record(in.NamespacedName)
	r.known, r.version = true, in.Version
	b.replaceService(r, parseService(in, r, b.config.Budgets))
}

// DeleteService removes a Service. It may be unknown.
func (b *Builder) DeleteService(name NamespacedName) {
	if r := b.records[name]; r != nil {
		r.known, r.version = false, 0
		b.replaceService(r, nil)
	}
}

// ServiceUID returns the UID of a Service, or "" if it is not known.
func (b *Builder) ServiceUID(name NamespacedName) string {
	if r := b.records[name]; r != nil && r.service != nil {
		return r.service.uid
	}
	return ""
}

// Version returns the version with which a Service or an EndpointSlice was set, served or not, and whether the builder
// has the object. The versions of other kinds are unknown: 0.
func (b *Builder) Version(of ObjectRef) (version uint64, known bool) {
	switch of.Kind {
	case "Service":
		if r := b.records[of.NamespacedName]; r != nil {
			return r.version, r.known
		}
	case "EndpointSlice":
		if s := b.slices[of.NamespacedName]; s != nil {
			return s.version, true
		}
	case "Node":
		known = b.node != nil && b.node.Name == of.Name
	case "ServiceCIDR":
		_, known = b.cidrs[of.Name]
	}
	return 0, known
}

// Names returns the names of the objects of a kind, served or not.
func (b *Builder) Names(kind string) (all []NamespacedName) {
	switch kind {
	case "Service":
		for name, r := range b.records {
			if r.known {
				all = append(all, name)
			}
		}
	case "EndpointSlice":
		all = slices.Collect(maps.Keys(b.slices))
	case "Node":
		if b.node != nil {
			all = append(all, NamespacedName{Name: b.node.Name})
		}
	case "ServiceCIDR":
		for name := range b.cidrs {
			all = append(all, NamespacedName{Name: name})
		}
	}
	return all
}

func (b *Builder) replaceService(r *record, s *service) {
	old := r.service
	if old == nil && s == nil {
		b.forget(r)
		return
	}
	b.markDirty(r)
	r.service = s
	if old != nil {
		b.withdraw(old)
	}
	if s != nil {
		b.claim(s)
	}
}

// claim registers the frontends that a Service asks for, and marks the other Services that do.
func (b *Builder) claim(s *service) {
	for i, a := range s.addrs {
		s.addrs[i].refused = b.addrScope.refusal(a) != ""
	}
	for v := range s.wants() {
		b.claims.add(v, s)
		b.markClaimants(v)
	}
}

func (b *Builder) withdraw(s *service) {
	for v := range s.wants() {
		b.claims.remove(v, s)
		b.markClaimants(v)
	}
}

func (b *Builder) markClaimants(v VIP) {
	for _, s := range b.claims[v] {
		b.markDirty(s.record)
	}
}

func (b *Builder) markDirty(r *record) {
	if !r.dirty {
		r.dirty = true
		b.dirty = append(b.dirty, r)
	}
}

// SetEndpointSlice adds or replaces an EndpointSlice.
func (b *Builder) SetEndpointSlice(in EndpointSlice) {
	s, service, problems := parseEndpointSlice(in, b.config.NodeName)
	b.removeSlice(in.NamespacedName)
	name := in.NamespacedName
	if service != "" {
		r := b.record(NamespacedName{in.Namespace, service})
		s.record, name.Namespace = r, r.name.Namespace // the same string
		i, _ := r.find(s.name)
		s.sharePorts(r.slices[max(0, i-1):min(i+1, len(r.slices))])
		r.slices = slices.Insert(r.slices, i, s)
		b.markDirty(r)
	}
	b.slices[name] = s
	b.setProblems(ObjectRef{"EndpointSlice", in.NamespacedName}, problems)
}

// DeleteEndpointSlice removes an EndpointSlice. It may be unknown.
func (b *Builder) DeleteEndpointSlice(name NamespacedName) {
	b.removeSlice(name)
	b.setProblems(ObjectRef{"EndpointSlice", name}, problemList{})
}

func (b *Builder) removeSlice(name NamespacedName) {
	s := b.slices[name]
	if s == nil {
		return
	}
	delete(b.slices, name)
	if r := s.record; r != nil {
		if i, ok := r.find(s.name); ok {
			r.slices = slices.Delete(r.slices, i, i+1)
		}
		b.markDirty(r)
	}
}

func (b *Builder) setProblems(ref ObjectRef, found problemList) {
	list := found.capped(b.config.Budgets.Problems)
	if slices.Equal(b.problems[ref], list) {
		return
	}
	b.problemsStale = true
	if len(list) == 0 {
		delete(b.problems, ref)
	} else {
		b.problems[ref] = list
	}
}
