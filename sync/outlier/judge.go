package outlier

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/model"
)

const (
	// enough is how many packets clients send again before a silent endpoint is ejected.
	enough = 2
	// mostSuspects bounds the suspects of one Service, so that it can't use up the probes of other Services.
	mostSuspects = 32
	// mostWitnesses bounds the endpoints of a Node, each of another namespace, that must be silent, too.
	mostWitnesses = 3
	// longestPause is the longest time until a silent endpoint is asked again.
	longestPause = 10 * time.Second
)

// judge decides whom to ask, and what to eject. It has no clock.
type judge struct {
	self    string // this Node's name: it is never ejected
	cluster cluster
	shuffle Shuffle

	suspects map[netip.AddrPort]*suspect
	nodes    map[string]*node
}

// Shuffle orders n things by chance, as rand.Shuffle does.
type Shuffle func(n int, swap func(i, j int))

// cluster says where endpoints are, see model.Builder.
type cluster interface {
	NodeOf(service model.NamespacedName, a netip.Addr) string
	Places(node string, except netip.Addr) []model.Place
}

// suspect is an endpoint that did not answer a client, or one that is asked for its Node.
type suspect struct {
	of      model.NamespacedName // the Service for which it was first seen
	node    string               // once it matters
	witness bool                 // of its Node only: it stays in use
	seen    bool                 // there are attempts now

	packets, clients int
	asking           bool
	asked            int // packets when it was asked
	pause            time.Duration
	next             time.Time // when it may be asked again
	silent           bool      // it did not answer
	ejected          time.Time // zero: it is not
}

// node is a Node of which an endpoint is silent.
type node struct {
	witnesses []netip.AddrPort
	ejected   time.Time
}

func newJudge(self string, c cluster, s Shuffle) *judge {
	return &judge{self, c, s, map[netip.AddrPort]*suspect{}, map[string]*node{}}
}

// idle reports whether there is nothing to follow.
func (j *judge) idle() bool { return len(j.suspects) == 0 }

// observe takes a reading. An endpoint that was silent already may be ejected for it.
func (j *judge) observe(now time.Time, attempts []model.Attempt, s *model.Snapshot) {
	if len(attempts) == 0 && j.idle() {
		return
	}
	for _, o := range j.suspects {
		o.seen = false
	}
	counted := map[netip.AddrPort]model.Ejection{}
	for _, a := range attempts {
		c := counted[a.Endpoint]
		counted[a.Endpoint] = model.Ejection{Packets: c.Packets + a.Packets, Clients: c.Clients + 1}
	}
	known := j.known(counted, s)
	perService := map[model.NamespacedName]int{}
	for _, o := range j.suspects {
		perService[o.of]++
	}
	for _, at := range slices.SortedFunc(maps.Keys(counted), netip.AddrPort.Compare) {
		if of := known[at]; of.detects && j.suspect(at, of.service, counted[at], perService[of.service]) {
			perService[of.service]++
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(j.suspects), netip.AddrPort.Compare) {
		o, of := j.suspects[at], known[at]
		gone := of.service == model.NamespacedName{} || !o.witness && !of.detects
		quiet := !o.seen && !o.witness && o.ejected.IsZero() && !now.Before(o.next)
		if !o.asking && (gone || quiet) {
			j.drop(at)
		} else if o.silent && o.seen {
			j.eject(now, at)
		}
	}
}

// owner is a Service with an endpoint.
type owner struct {
	service model.NamespacedName
	detects bool // it asks for outlier detection
}

// known returns the Services of endpoints with attempts, and of suspects. One without is unknown to Kubernetes, or not
// ready.
func (j *judge) known(counted map[netip.AddrPort]model.Ejection, s *model.Snapshot) map[netip.AddrPort]owner {
	all := map[netip.AddrPort]owner{}
	for at := range counted {
		all[at] = owner{}
	}
	for at := range j.suspects {
		all[at] = owner{}
	}
	for _, f := range model.Families {
		for sp := range s.Family(f).ServicePorts() {
			note := func(at netip.AddrPort) {
				if of, asked := all[at]; asked && !of.detects {
					all[at] = owner{sp.Name.NamespacedName, sp.OutlierDetection}
				}
			}
			if sp.Name.Protocol != model.TCP {
				continue
			}
			for _, e := range sp.Endpoints {
				note(e.Addr)
			}
			for _, at := range sp.Ejected {
				note(at)
			}
		}
	}
	return all
}

// suspect notes what clients sent again to an endpoint of a Service, which has so many suspects. It reports whether it
// has one more now.
func (j *judge) suspect(at netip.AddrPort, of model.NamespacedName, seen model.Ejection, others int) (isNew bool) {
	o := j.suspects[at]
	if o == nil {
		if others >= mostSuspects {
			return false
		}
		o, isNew = &suspect{of: of}, true
		j.suspects[at] = o
	}
	o.seen, o.packets, o.clients = true, seen.Packets, seen.Clients
	return isNew
}

// due returns the endpoints to ask now, those first that were asked least: the ejected ones and the witnesses when
// their time has come, and others to which clients have sent more since they were asked.
func (j *judge) due(now time.Time) []netip.AddrPort {
	var list []netip.AddrPort
	for at, o := range j.suspects {
		again := !o.ejected.IsZero() || o.witness || o.seen && (o.pause == 0 || o.packets > o.asked)
		if again && !o.asking && !now.Before(o.next) {
			list = append(list, at)
		}
	}
	slices.SortFunc(list, func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(j.suspects[a].pause, j.suspects[b].pause), a.Compare(b))
	})
	return list
}

// ask notes that an endpoint is being asked.
func (j *judge) ask(at netip.AddrPort) {
	o := j.suspects[at]
	o.asking, o.asked = true, o.packets
}

// Answer says how an endpoint behaves when it is asked.
type Answer uint8

// The answers.
const (
	Unknown Answer = iota // this node could not ask
	Answered
	Silence
)

// answered takes the answer of an endpoint that was asked.
func (j *judge) answered(now time.Time, at netip.AddrPort, a Answer) {
	o := j.suspects[at]
	if o == nil {
		return
	}
	o.asking, o.pause = false, min(max(2*o.pause, time.Second), longestPause)
	o.next = now.Add(o.pause)
	switch a {
	case Unknown:
	case Answered:
		if n := j.nodes[o.node]; n != nil {
			j.release(o.node, n)
		}
		o.silent = false
		if j.suspects[at] != nil && (o.witness || !o.ejected.IsZero()) {
			j.drop(at)
		}
	case Silence:
		o.silent = true
		j.eject(now, at)
		j.judgeNode(now, o.node)
	}
}

// eject ejects a silent endpoint to which clients sent enough, and looks for witnesses on its Node.
func (j *judge) eject(now time.Time, at netip.AddrPort) {
	o := j.suspects[at]
	if !o.ejected.IsZero() || o.packets < enough {
		return
	}
	o.ejected, o.witness = now, false
	if o.node == "" {
		o.node = j.cluster.NodeOf(o.of, at.Addr())
	}
	if o.node == "" || o.node == j.self || j.nodes[o.node] != nil {
		return
	}
	n := &node{}
	j.nodes[o.node] = n
	places := j.cluster.Places(o.node, at.Addr())
	others := slices.DeleteFunc(slices.Clone(places), func(p model.Place) bool { return p.Namespace == o.of.Namespace })
	if len(others) > 0 {
		places = others
	}
	// Who may write EndpointSlices of several namespaces can't foresee which are asked.
	j.shuffle(len(places), func(a, b int) { places[a], places[b] = places[b], places[a] })
	for _, p := range places[:min(len(places), mostWitnesses)] {
		n.witnesses = append(n.witnesses, p.Endpoint)
		if w := j.suspects[p.Endpoint]; w == nil {
			j.suspects[p.Endpoint] = &suspect{node: o.node, witness: true}
		} else {
			w.node = o.node
		}
	}
	j.judgeNode(now, o.node)
}

// judgeNode ejects a Node if all its witnesses are silent.
func (j *judge) judgeNode(now time.Time, name string) {
	n := j.nodes[name]
	if n == nil || !n.ejected.IsZero() {
		return
	}
	isSilent := func(at netip.AddrPort) bool { return j.suspects[at] != nil && j.suspects[at].silent }
	if len(n.witnesses) > 0 && !slices.ContainsFunc(n.witnesses, func(at netip.AddrPort) bool { return !isSilent(at) }) {
		n.ejected = now
	}
}

// release brings a Node back, and needs its witnesses no longer.
func (j *judge) release(name string, n *node) {
	delete(j.nodes, name)
	for _, at := range n.witnesses {
		if o := j.suspects[at]; o != nil && o.witness {
			delete(j.suspects, at)
		}
	}
}

// drop forgets a suspect. A Node of which nothing is left to ask is forgotten, too.
func (j *judge) drop(at netip.AddrPort) {
	o := j.suspects[at]
	delete(j.suspects, at)
	n := j.nodes[o.node]
	if n == nil {
		return
	}
	n.witnesses = slices.DeleteFunc(n.witnesses, func(w netip.AddrPort) bool { return w == at })
	if len(n.witnesses) == 0 {
		delete(j.nodes, o.node)
	}
}

// ejections returns what is ejected.
func (j *judge) ejections() *model.Ejections {
	e := &model.Ejections{}
	for at, o := range j.suspects {
		if !o.ejected.IsZero() {
			e.Endpoints = append(e.Endpoints, model.Ejection{
				Endpoint: at, Node: o.node, Since: o.ejected, Packets: o.packets, Clients: o.clients,
			})
		}
	}
	for name, n := range j.nodes {
		if !n.ejected.IsZero() {
			e.Nodes = append(e.Nodes, model.Ejection{Node: name, Since: n.ejected})
		}
	}
	slices.SortFunc(e.Endpoints, func(a, b model.Ejection) int { return a.Endpoint.Compare(b.Endpoint) })
	slices.SortFunc(e.Nodes, func(a, b model.Ejection) int { return cmp.Compare(a.Node, b.Node) })
	return e
}
