package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Query asks for a connection.
type Query struct {
	From, To Ref
	// Namespace is that of names without one; "": any namespace in which alone there is the name.
	Namespace string
	Family    string // the wanted one, as IPv4; "": either
	Interface string // by which the connection arrives; "": not known
	// NodeName is the node that decides; "": where the client is, or else Default.
	NodeName string
	// Default is the node that decides about clients of an unknown place; may be "".
	Default string
}

// Between returns the query about a connection between two ends, by their names.
func (q Query) Between(from, to string) (_ Query, err error) {
	if q.To, err = ParseDestination(to); err != nil {
		return q, err
	}
	if q.From, err = ParseSource(from); err != nil {
		err = fmt.Errorf("--from: %w", err)
	}
	return q, err
}

// Values are the query of a request to the daemon, which ParseQuery reads.
func (q *Query) Values() url.Values {
	return url.Values{
		"from": {q.From.text}, "to": {q.To.text},
		"namespace": {q.Namespace}, "family": {q.Family}, "interface": {q.Interface},
	}
}

// ParseQuery reads the query of a request.
func ParseQuery(v url.Values) (Query, error) {
	q := Query{Namespace: v.Get("namespace"), Family: v.Get("family"), Interface: v.Get("interface")}
	return q.Between(v.Get("from"), v.Get("to"))
}

// NamespaceOf returns the namespace of a name in the query; "": any.
func (q *Query) NamespaceOf(r Ref) string { return cmp.Or(r.Namespace, q.Namespace) }

// Named returns the ends that are named as objects of a kind; those of a nil query are none.
func (q *Query) Named(k Kind) []Ref {
	if q == nil {
		return nil
	}
	return slices.DeleteFunc([]Ref{q.From, q.To}, func(r Ref) bool { return r.Kind != k })
}

// HasNames reports whether objects are needed to find the addresses.
func (q *Query) HasNames() bool {
	return q.From.Kind != Address && q.From.Kind != Process || q.To.Kind != Address
}

// HasEnd reports whether an endpoint is an end of the connection.
func (q *Query) HasEnd(e Endpoint) bool {
	is := func(r Ref) bool {
		return r.Kind == Pod && e.Pod.Name == r.Name || r.Kind == Address && Has(e.Addresses[:1], r.Addr)
	}
	return is(q.From) || is(q.To)
}

// Answer is a connection with addresses. The source of a process of the node that decides may be missing.
type Answer struct {
	model.Connection
	NodeName string // "": not known
	// Client and Server are the objects at the ends, in words; "" for addresses.
	Client, Server string
}

// end is one end of a connection.
type end struct {
	what    string       // in words; "" for an address and a process of the node
	addrs   []netip.Addr // preferred ones first; none: those of the node
	node    string
	process bool
	// Of a destination.
	port     uint16
	protocol model.Protocol
}

func (e end) String() string {
	return cmp.Or(strings.TrimSpace(e.what+" "+report.List(e.addrs, 0)), "the node")
}

// Resolve finds the addresses and the node of a connection.
func (d *Directory) Resolve(q Query) (out Answer, err error) {
	from, err := d.end(&q, q.From)
	if err != nil {
		return out, fmt.Errorf("--from: %w", err)
	}
	q.NodeName = cmp.Or(q.NodeName, from.node)
	if q.To.Kind == Node && q.From.Kind != Process {
		q.NodeName = cmp.Or(q.NodeName, q.To.Name) // connections to a node's address from elsewhere are decided there
	}
	q.NodeName = cmp.Or(q.NodeName, q.Default)
	if q.To.Kind == Process {
		q.To.Kind, q.To.Name = Node, q.NodeName
	}
	to, err := d.end(&q, q.To)
	if err != nil {
		return out, err
	}
	out.NodeName, out.Client, out.Server = q.NodeName, from.what, to.what
	out.Node, out.Protocol = from.process, to.protocol
	for _, t := range to.addrs {
		i := slices.IndexFunc(from.addrs, func(f netip.Addr) bool { return f.Is4() == t.Is4() })
		if i < 0 && len(from.addrs) > 0 || q.Family != "" && model.FamilyOf(t).String() != q.Family {
			continue
		}
		if out.Dest = netip.AddrPortFrom(t, to.port); i >= 0 {
			out.Source = from.addrs[i]
		}
		return out, nil
	}
	return out, fmt.Errorf("%v and %v have no %s in common", from, to, cmp.Or(q.Family, "IP family"))
}

// end finds one end of the connection.
func (d *Directory) end(q *Query, ref Ref) (e end, err error) {
	e.port = ref.number()
	e.protocol, _ = model.ParseProtocol(strings.ToUpper(ref.Protocol)) // ParseDestination has checked it
	switch ref.Kind {
	case Process:
		e.process = true
		return e, nil
	case Node:
		var n *model.Node
		if n, err = d.Node(ref.Name); err == nil {
			e.what, e.addrs, e.node = "node "+n.Name, Addrs(n.Addresses), n.Name
			e.process = q.NodeName == "" || q.NodeName == n.Name
		}
	case Pod:
		err = d.findPod(ref, q.NamespaceOf(ref), &e)
	case Service:
		err = d.findService(ref, q.NamespaceOf(ref), &e)
	case Address:
		e.addrs = []netip.Addr{ref.Addr}
	}
	if err == nil && len(e.addrs) == 0 {
		err = fmt.Errorf("%s has no address", e.what)
	}
	return e, err
}

// Only returns the name of an object, with its namespace: the given one or, with "", the only one that has it.
func Only(kind Kind, name, namespace string, among []model.NamespacedName) (one model.NamespacedName, err error) {
	where := ""
	if namespace != "" {
		where = " in namespace " + namespace
	}
	var found []string
	for _, n := range among {
		if n.Name == name && (namespace == "" || n.Namespace == namespace) {
			found, one = append(found, n.String()), n
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return one, nil
	case 0:
		return one, fmt.Errorf("%s %q not found%s", kind, name, where)
	}
	return one, fmt.Errorf("several namespaces have a %s %s: %s; give the namespace (-n), or %s/NAMESPACE/NAME",
		kind, name, report.List(found, 10), kind)
}

func (d *Directory) findPod(ref Ref, namespace string, e *end) error {
	var among []model.NamespacedName
	for _, p := range d.Pods {
		among = append(among, model.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	}
	for _, e := range d.endpoints() {
		among = append(among, e.Pod)
	}
	name, err := Only(Pod, ref.Name, namespace, among)
	if err != nil && d.NoPods != nil {
		return fmt.Errorf("%w (only pods that are endpoints of Services are known: %w)", err, d.NoPods)
	}
	if err != nil {
		return err
	}
	e.what = "pod " + name.String()
	for _, p := range d.endpoints() {
		if p.Pod == name {
			e.addrs, e.node = append(e.addrs, Addrs(p.Addresses[:1])...), p.NodeName
		}
	}
	for _, p := range d.Pods {
		if p.Namespace == name.Namespace && p.Name == name.Name {
			e.addrs, e.node, e.process = addrsOf(p), p.Spec.NodeName, p.Spec.HostNetwork
		}
	}
	slices.SortFunc(e.addrs, netip.Addr.Compare) // the order of slices has no meaning: IPv4 first
	e.addrs = slices.Compact(e.addrs)
	return nil
}

// findService finds the cluster IPs of a Service, and a port that is given by name, by number, or not at all.
func (d *Directory) findService(ref Ref, namespace string, e *end) error {
	var all []model.NamespacedName
	for _, s := range d.Services {
		all = append(all, s.NamespacedName)
	}
	name, err := Only(Service, ref.Name, namespace, all)
	if err != nil {
		return err
	}
	s := d.Service(name)
	e.what, e.addrs = "Service "+name.String(), Addrs(s.ClusterIPs)
	if len(e.addrs) == 0 {
		return fmt.Errorf("%s has no cluster IP, as it is headless or an ExternalName: DNS returns other addresses, "+
			"and no proxy serves it; name a pod, as in pod/NAME:PORT", e.what)
	}
	var found []model.Port
	for _, p := range s.Ports {
		protocol, _ := model.ParseProtocol(p.Protocol) // an invalid one is TCP here; the builder reports it
		if (ref.Port == "" || p.Name == ref.Port || strconv.Itoa(int(p.Port)) == ref.Port) &&
			(ref.Protocol == "" || protocol.String() == ref.Protocol) {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		e.port = uint16(found[0].Port)
		e.protocol, _ = model.ParseProtocol(found[0].Protocol)
	case e.port == 0: // else it is TCP, if the Service has both; the explanation has the Service's ports
		return fmt.Errorf("%q names no port of %s; its ports: %s", ref.text, e.what, PortsText(s.Ports))
	}
	return nil
}

// PortsText names ports of a Service or a slice.
func PortsText(ports []model.Port) string {
	var list []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, strings.ToLower(cmp.Or(p.Protocol, "TCP")))
		if p.Name != "" {
			text = fmt.Sprintf("%q (%s)", p.Name, text)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}
