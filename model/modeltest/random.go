package modeltest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Random makes clusters and changes to them. Names and addresses come from small
// pools, so that objects often meet: two Services on one address, an external address and port
// that are a node port of another Service or an endpoint, one pod in two slices, slices of
// Services that are gone. About one value in thirty is bad.
type Random struct {
	*rand.Rand

	objects map[model.ObjectRef]Object
	nodes   []Change // all of them: a Builder remembers the Node's former addresses
	host    []netip.Addr
	version uint64 // of the last Service or EndpointSlice
}

// NewRandom returns a generator that has made no objects yet.
func NewRandom(src rand.Source) *Random {
	return &Random{Rand: rand.New(src), objects: map[model.ObjectRef]Object{}}
}

// Step makes a random change.
func (r *Random) Step() Change {
	switch n := r.IntN(32); {
	case n == 0:
		r.host = r.hostAddresses()
		return Change{Host: r.host}
	case n < 6 && len(r.objects) > 0:
		o := r.objects[pick(r, r.refs())]
		delete(r.objects, o.Ref())
		return r.noted(Change{Object: o, Delete: true})
	}
	o := r.object()
	r.objects[o.Ref()] = o
	return r.noted(Change{Object: o})
}

func (r *Random) noted(c Change) Change {
	if _, ok := c.Object.(Node); ok {
		r.nodes = append(r.nodes, c)
	}
	return c
}

// Steps makes n changes and applies them.
func (r *Random) Steps(b *model.Builder, n int) {
	for range n {
		r.Step().Apply(b)
	}
}

// Rebuild sets the objects that are left after all changes so far, in random order, and makes
// all changes of Nodes.
func (r *Random) Rebuild(b *model.Builder) {
	refs := r.refs()
	r.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	for _, ref := range refs {
		if _, ok := r.objects[ref].(Node); !ok {
			r.objects[ref].Set(b)
		}
	}
	for _, c := range r.nodes {
		c.Apply(b)
	}
	b.SetHostAddresses(r.host)
}

// refs returns the references of all objects, sorted.
func (r *Random) refs() []model.ObjectRef {
	return slices.SortedFunc(maps.Keys(r.objects), func(a, b model.ObjectRef) int {
		return cmp.Compare(a.String(), b.String())
	})
}

func (r *Random) object() Object {
	switch n := r.IntN(24); {
	case n < 2:
		return r.node()
	case n == 2:
		return NewServiceCIDR(pick(r, []string{"kubernetes", "extra"}),
			pick(r, []string{
				"172.30.0.0/16", "172.030.000.0/024", "255.255.0.0/16", "172.30.0.0/33",
				"::ffff:172.30.0.0/112",
			}),
			pick(r, []string{"fd00:172:30::/112", "fd00:172:30::/64", "ffff::/16", "nowhere"}))
	case n < 12:
		return r.service()
	}
	return r.slice()
}

func (r *Random) node() Node {
	addrs := []string{pick(r, []string{NodeIP4, "192.168.000.003"}), pick(r, []string{NodeIP6, "fd00:192:168::3"})}
	n := NewNode(pick(r, []string{NodeName, NodeName, NodeName, "node-2"}), addrs[r.IntN(2):]...).
		In(pick(r, []string{"zone-a", "zone-b", ""}))
	if n.Zone == "" && len(n.Addresses) == 1 {
		n.Deleting, n.Addresses = true, append(n.Addresses, "nowhere")
	}
	if n.Zone == "zone-b" {
		n.Taints = []string{"node.kubernetes.io/unschedulable", model.TaintToBeDeleted}
	}
	switch r.IntN(4) {
	case 0:
		n = n.Pods("10.0.0.0/29", "fd00:10::/125")
	case 1:
		n = n.Pods("010.0.0.0/028")
	case 2:
		n = n.Pods("fd00:10::/124", pick(r, []string{"10.0.0.8/29", "nowhere"}))
	}
	return n
}

func (r *Random) service() Service {
	s := NewService(r.name()).CreatedAt(r.IntN(3))
	r.version++
	s.Version = r.version
	s.Type = pick(r, []string{"ClusterIP", "ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName", ""})
	var ips []string
	if r.IntN(8) != 0 {
		ips = append(ips, r.addr("172.30.0.", "0", 8))
	}
	if r.IntN(3) == 0 {
		ips = append(ips, r.addr("fd00:172:30::", "", 8))
	}
	if r.IntN(16) == 0 {
		ips = append([]string{"None"}, ips...)
	}
	s = s.On(ips...)
	for range r.IntN(3) {
		s = s.External(append(slices.Clip(s.ExternalIPs),
			pick(r, []string{
				r.addr("192.168.99.", "", 3), r.addr("fd00:192:168:99::", "", 2),
				r.addr("192.168.98.", "", 2), r.addr("172.30.0.", "", 8), r.shared(),
			}))...)
	}
	for range r.IntN(3) {
		s = s.From(model.Ingress{
			IP:     pick(r, []string{r.addr("192.168.98.", "", 3), r.addr("fd00:192:168:98::", "", 2), r.shared(), ""}),
			IPMode: pick(r, []string{"", "", "VIP", "Proxy"}),
		})
	}
	for range r.IntN(4) {
		s = s.Port(r.port())
	}
	s = r.choosing(s.Policies(r.policy(), r.policy()))
	switch s.Created {
	case Moment(0):
		s.HealthCheckNodePort = 32000
	case Moment(1):
		s.HealthCheckNodePort = 70000
	}
	s.UID = "uid of " + s.Name
	s = annotated(s)
	if r.IntN(2) == 0 {
		s = s.Ranges(r.ranges()...)
	}
	if r.IntN(24) == 0 {
		s = s.Labeled(pick(r, []string{model.LabelServiceProxyName, model.LabelHeadless, "app"}), "")
	}
	return s
}

func (r *Random) policy() string {
	if r.bad() {
		return "local"
	}
	return pick(r, []string{"", "Cluster", "Local", "Local"})
}

// choosing sets a Service's session affinity and algorithm.
func (r *Random) choosing(s Service) Service {
	switch r.IntN(6) {
	case 0:
		s = s.Sticky(r.timeout())
	case 1:
		s.SessionAffinity = "ClientIP"
	case 2:
		s = s.Sticky(r.timeout())
		s.SessionAffinity = pick(r, []string{"None", "", "clientIP"})
	}
	if r.IntN(3) == 0 {
		s = s.Algorithm(pick(r, []string{
			"random", "round-robin", "source-hash", "maglev", "maglev", "maglev-port",
			"maglev-port", "least-conn",
		}))
	}
	return s
}

// annotated gives a Service annotations, besides that of the algorithm: one of its examples, one that is invalid, or
// none. No choice of the source depends on them, so that a seed means the same when there is another annotation.
func annotated(s Service) Service {
	n := int(s.Created.Sub(Moment(0)).Seconds())
	for _, a := range model.Annotations {
		if a.Name == model.AnnotationAlgorithm {
			continue
		}
		values := append(slices.Clip(a.Examples), "soon", "")
		if value := values[n%len(values)]; value != "" {
			s = s.Annotated(a.Name, value)
		}
		n += len(s.Ports)
	}
	return s
}

func (r *Random) timeout() int32 {
	return pick(r, []int32{1, 60, 60, 10800, 86400, 0, -1, 86401})
}

func (r *Random) ranges() []string {
	var list []string
	for range 1 + r.IntN(4) {
		if r.bad() {
			list = append(list, pick(r, []string{"", "203.0.113.0", "nowhere", "10.0.0.0/33"}))
			continue
		}
		list = append(list, pick(r, []string{
			"203.0.113.0/24", "203.0.113.0/25", " 203.000.113.128/025 ", "203.0.113.7/32", "::ffff:203.0.113.0/121",
			"192.168.0.0/24", "192.168.0.2/32", "10.0.0.0/29", "0.0.0.0/0",
			"2001:00db8:203::/064", "2001:db8:203::7/128", "fd00:192:168::/64", "fd00:10::/125", "::/0",
		}))
	}
	return list
}

func (r *Random) port() model.Port {
	name := r.portName()
	return model.Port{
		Name:     name,
		Protocol: r.protocol(name),
		Port:     r.number(80, 443, 53, 30000, 30001, 8080, 8081),
		NodePort: pick(r, []int32{0, 0, 0, 30000, 30001, 30002, r.number(30003)}),
	}
}

func (r *Random) slice() Slice {
	service := pick(r, []string{"web", "db", "dns", "api"})
	namespace := pick(r, []string{"ns1", "ns2"})
	s := NewSlice(fmt.Sprintf("%s/%s-%d", namespace, service, r.IntN(3)), service)
	r.version++
	s.Version = r.version
	pods := "10.0.0."
	if r.IntN(3) == 0 {
		s, pods = s.IPv6(), "fd00:10::"
	}
	for range 3 {
		if r.bad() {
			s = s.RawPort(pick(r, []model.SlicePort{{}, {Name: new(string)}}))
			continue
		}
		name := r.portName()
		s = s.Port(name, r.protocol(name), r.number(8080, 8081, 53))
	}
	hints := r.IntN(6)
	for range r.IntN(8) {
		e := model.SliceEndpoint{
			Addresses: []string{r.addr(pods, "0", 12)},
			NodeName:  pick(r, []string{NodeName, "node-2", ""}),
		}
		if r.IntN(16) == 0 { // in the node's own network
			e.Addresses, e.NodeName = []string{nodeIP(s.AddressType)}, NodeName
		}
		r.hint(&e, hints)
		if r.IntN(3) == 0 {
			yes, no := true, false
			e.Ready = pick(r, []*bool{nil, &yes, &no, &no})
			e.Serving = pick(r, []*bool{nil, &yes, &no})
			e.Terminating = pick(r, []*bool{nil, &yes, &no})
		}
		if r.bad() {
			e.Addresses = nil
		}
		s = s.RawEndpoint(e)
	}
	if n := len(s.Endpoints); n > 4 { // an older pod had the address of the last one, and its object is still there
		old := s.Endpoints[n-1]
		old.NodeName = s.Endpoints[0].NodeName
		old.HintNodes, old.HintZones = s.Endpoints[1].HintNodes, s.Endpoints[1].HintZones
		Conditions(n == 5, n != 6, true)(&old)
		s = s.RawEndpoint(old)
	}
	switch r.IntN(48) {
	case 0:
		delete(s.Labels, model.LabelServiceName)
	case 1:
		s.AddressType = pick(r, []string{"FQDN", "", "IPX"})
	case 2:
		s = s.Labeled(model.LabelHeadless, "")
	case 3:
		s = s.Labeled(model.LabelServiceProxyName, "")
	}
	return s
}

func nodeIP(addressType string) string {
	if addressType == "IPv6" {
		return NodeIP6
	}
	return NodeIP4
}

// hint gives an endpoint hints of a kind, as the controller does for all endpoints of a
// Service or for none.
func (r *Random) hint(e *model.SliceEndpoint, kind int) {
	if r.IntN(16) == 0 {
		return // the controller has not updated this slice yet
	}
	if kind < 2 {
		ForNodes(pick(r, [][]string{{NodeName}, {"node-2"}, {"node-2", NodeName}, {"node-3"}})...)(e)
	}
	if kind < 4 {
		ForZones(pick(r, [][]string{{"zone-a"}, {"zone-b"}, {"zone-a", "zone-b"}, {"zone-c"}})...)(e)
	}
}

// hostAddresses are some of the node's, the pods' bridge, and an address of a load
// balancer that lets the node answer for it.
func (r *Random) hostAddresses() []netip.Addr {
	all := []string{NodeIP4, "192.168.0.3", "10.0.0.1", "192.168.98.2", NodeIP6, "fd00:10::1"}
	var list []netip.Addr
	for _, s := range all {
		if r.IntN(2) == 0 {
			list = append(list, netip.MustParseAddr(s))
		}
	}
	return list
}
