package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Query asks for a connection.
type Query struct {
	From, To Ref
	// Namespace is that of names without one; "": any namespace in which alone there is the name.
	Namespace string
	Family    *model.Family // the wanted one; nil: either
	// NodeName is the node that decides; "": where the client is, or else Default.
	NodeName string
	// Default is the node that decides about clients of an unknown place; may be "".
	Default string
}

// Answer is a connection with addresses.
type Answer struct {
	Source   netip.Addr
	Process  bool // of the node that decides; then Source may be missing
	Dest     netip.AddrPort
	Protocol model.Protocol
	NodeName string // "": not known
	// Client and Server are the objects at the ends, in words; "" for addresses.
	Client, Server string
	// Notes say which of several things was taken.
	Notes []string
}

// end is one end of a connection.
type end struct {
	addrs   []netip.Addr // preferred ones first
	node    string
	what    string // in words; "" for an address
	process bool
}

// port is the port of a destination.
type port struct {
	number   uint16
	protocol model.Protocol
}

// Resolve finds the addresses and the node of a connection.
func (d *Directory) Resolve(q Query) (Answer, error) {
	r := resolver{Directory: d, Query: q}
	from, err := r.client()
	if err != nil {
		return Answer{}, fmt.Errorf("--from: %w", err)
	}
	r.NodeName = cmp.Or(r.NodeName, from.node)
	if q.To.Kind == Node && from.addrs != nil {
		r.NodeName = cmp.Or(r.NodeName, q.To.Name) // connections to a node's address from elsewhere are decided there
	}
	r.NodeName = cmp.Or(r.NodeName, q.Default)
	to, at, err := r.server()
	if err != nil {
		return Answer{}, err
	}
	out := Answer{NodeName: r.NodeName, Client: from.what, Server: to.what, Protocol: at.protocol, Process: from.process}
	return out, r.match(&out, from, to, at.number)
}

type resolver struct {
	*Directory
	Query
}

// match chooses addresses of one family for both ends.
func (r *resolver) match(out *Answer, from, to end, number uint16) error {
	unwanted := func(a netip.Addr) bool { return r.Family != nil && model.FamilyOf(a) != *r.Family }
	froms := slices.DeleteFunc(slices.Clone(from.addrs), unwanted)
	tos := slices.DeleteFunc(slices.Clone(to.addrs), unwanted)
	for _, left := range []struct {
		end
		ref   Ref
		addrs []netip.Addr
	}{{from, r.From, froms}, {to, r.To, tos}} {
		if len(left.addrs) == 0 && len(left.end.addrs) > 0 {
			return fmt.Errorf("%s has no %v address: it has %s", cmp.Or(left.what, left.ref.text), *r.Family, join(left.end.addrs))
		}
	}
	also := false
	for _, t := range tos {
		i := slices.IndexFunc(froms, func(f netip.Addr) bool { return f.Is4() == t.Is4() })
		switch {
		case i < 0 && len(from.addrs) > 0:
		case !out.Dest.IsValid():
			out.Dest = netip.AddrPortFrom(t, number)
			if i >= 0 {
				out.Source = froms[i]
			}
		case out.Dest.Addr().Is4() != t.Is4():
			also = true
		}
	}
	switch {
	case !out.Dest.IsValid() && r.From.Kind == Address && r.To.Kind == Address:
		return fmt.Errorf("--from: %v is an %v address, but %v is an %v address: there is no connection between them",
			froms[0], model.FamilyOf(froms[0]), tos[0], model.FamilyOf(tos[0]))
	case !out.Dest.IsValid():
		return fmt.Errorf("%s and %s have no IP family in common: the addresses are %s and %s",
			cmp.Or(from.what, r.From.text), cmp.Or(to.what, r.To.text), join(from.addrs), join(to.addrs))
	case also && out.Dest.Addr().Is4():
		out.Notes = append(out.Notes, "IPv6 is also possible (-6)")
	case also:
		out.Notes = append(out.Notes, "IPv4 is also possible (-4)")
	}
	return nil
}

func join(list []netip.Addr) string {
	var texts []string
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// client finds the source.
func (r *resolver) client() (end, error) {
	switch ref := r.From; ref.Kind {
	case Process:
		return end{process: true}, nil
	case Node:
		n, err := r.node(ref.Name)
		e := end{addrs: addrsOf(n.Addresses), node: n.Name, what: "a process of the node " + n.Name}
		e.process = r.NodeName == "" || r.NodeName == n.Name
		return e, cmp.Or(err, e.needAddrs())
	case Pod:
		return r.pod(ref)
	default:
		return end{addrs: []netip.Addr{ref.Addr}}, nil
	}
}

func (e end) needAddrs() error {
	if len(e.addrs) == 0 {
		return fmt.Errorf("%s has no address", e.what)
	}
	return nil
}

// server finds the destination.
func (r *resolver) server() (end, port, error) {
	ref := r.To
	p, err := model.ParseProtocol(strings.ToUpper(ref.Protocol))
	if err != nil {
		return end{}, port{}, err
	}
	at := port{ref.number(), p}
	switch ref.Kind {
	case Process, Node:
		n, err := r.node(cmp.Or(ref.Name, r.NodeName))
		e := end{addrs: addrsOf(n.Addresses), what: "the node " + n.Name}
		return e, at, cmp.Or(err, e.needAddrs())
	case Pod:
		e, err := r.pod(ref)
		return e, at, err
	case Service:
		return r.service(ref)
	default:
		return end{addrs: []netip.Addr{ref.Addr}}, at, nil
	}
}

// node finds a Node.
func (r *resolver) node(name string) (model.Node, error) {
	var all []string
	for _, n := range r.Nodes {
		if n.Name == name {
			return n, nil
		}
		all = append(all, n.Name)
	}
	if name == "" {
		return model.Node{}, fmt.Errorf("which node? give its name (--node-name)%s", Instead("", all))
	}
	return model.Node{}, fmt.Errorf("node %q not found%s", name, Instead(name, all))
}

// CheckNode returns an error if there are Nodes, but none of a name.
func (d *Directory) CheckNode(name string) error {
	if len(d.Nodes) == 0 || name == "" {
		return nil
	}
	r := resolver{Directory: d}
	_, err := r.node(name)
	return err
}

// find returns the namespace of a name: the given one, or the only one that has it. among are the
// names of all objects of the kind.
func (r *resolver) find(kind Kind, ref Ref, among []model.NamespacedName) (model.NamespacedName, error) {
	name := model.NamespacedName{Namespace: cmp.Or(ref.Namespace, r.Namespace), Name: ref.Name}
	var found, others []string
	var one model.NamespacedName
	for _, n := range among {
		switch {
		case n.Name == name.Name && (name.Namespace == "" || n.Namespace == name.Namespace):
			if !slices.Contains(found, n.String()) {
				found, one = append(found, n.String()), n
			}
		case n.Namespace == name.Namespace:
			others = append(others, n.Name)
		case name.Namespace == "", n.Name == name.Name:
			others = append(others, n.String())
		}
	}
	slices.Sort(found)
	where := ""
	if name.Namespace != "" {
		where = " in namespace " + name.Namespace
	}
	switch len(found) {
	case 1:
		return one, nil
	case 0:
		return name, fmt.Errorf("%s %q not found%s%s", kind, name.Name, where, Instead(name.Name, others))
	}
	return name, fmt.Errorf("several namespaces have a %s %s: %s; give the namespace (-n), or %s/NAMESPACE/NAME",
		kind, ref.Name, strings.Join(found, ", "), kind)
}

// pod finds a pod, among pods or else among the endpoints of slices.
func (r *resolver) pod(ref Ref) (end, error) {
	var among []model.NamespacedName
	for _, p := range r.Pods {
		among = append(among, p.NamespacedName)
	}
	for _, s := range r.Slices {
		for _, name := range s.Pods {
			if name != "" {
				among = append(among, model.NamespacedName{Namespace: s.Namespace, Name: name})
			}
		}
	}
	name, err := r.find(Pod, ref, among)
	if err != nil && r.NoPods != nil {
		return end{}, fmt.Errorf("%w (only pods that are endpoints of Services are known: %w)", err, r.NoPods)
	}
	if err != nil {
		return end{}, err
	}
	p, ok := r.Directory.Pod(name.String())
	if !ok {
		return r.podOfSlices(name), nil
	}
	e := end{addrs: p.Addrs, node: p.Node, what: "pod " + p.String(), process: p.HostNetwork}
	switch {
	case p.Done:
		return e, fmt.Errorf("pod %v has ended: it has no address any more", p)
	case p.Node == "":
		return e, fmt.Errorf("pod %v is not on any node yet: it has no address", p)
	}
	return e, e.needAddrs()
}

// podOfSlices describes a pod that is an endpoint.
func (r *resolver) podOfSlices(name model.NamespacedName) end {
	e := end{what: "pod " + name.String()}
	for _, s := range r.Slices {
		for i, p := range s.Endpoints {
			if s.Namespace == name.Namespace && s.Pods[i] == name.Name && len(p.Addresses) > 0 {
				e.addrs = append(e.addrs, addrsOf(p.Addresses[:1])...)
				e.node = cmp.Or(p.NodeName, e.node)
			}
		}
	}
	// The order of the slices has no meaning: IPv4 first.
	slices.SortStableFunc(e.addrs, func(a, b netip.Addr) int { return cmp.Compare(model.FamilyOf(a), model.FamilyOf(b)) })
	return e
}

// service finds the cluster IPs of a Service.
func (r *resolver) service(ref Ref) (end, port, error) {
	var all []model.NamespacedName
	for _, s := range r.Services {
		all = append(all, s.NamespacedName)
	}
	name, err := r.find(Service, ref, all)
	if err != nil {
		return end{}, port{}, err
	}
	s, _ := r.Directory.Service(name)
	e := end{addrs: addrsOf(s.ClusterIPs), what: "Service " + name.String()}
	at, err := s.port(ref)
	switch {
	case err != nil:
	case s.Type == "ExternalName":
		err = fmt.Errorf("Service %v is of type ExternalName: it is only a name in DNS, and no proxy serves it", name)
	case len(e.addrs) == 0:
		err = fmt.Errorf("Service %v has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it; "+
			"name a pod, as in pod/NAME:PORT", name)
	}
	return e, at, err
}

// port finds the number of a port that is given by name, by number, or not at all.
func (s ServiceObject) port(ref Ref) (port, error) {
	var found []model.Port
	var all []string
	for _, p := range s.Ports {
		protocol, _ := model.ParseProtocol(p.Protocol) // an invalid one is TCP here; the builder reports it
		text := fmt.Sprintf("%d/%v", p.Port, protocol)
		if p.Name != "" {
			text = fmt.Sprintf("%q (%s)", p.Name, text)
		}
		all = append(all, text)
		if (ref.Port == "" || p.Name == ref.Port || strconv.Itoa(int(p.Port)) == ref.Port) &&
			(ref.Protocol == "" || protocol.String() == ref.Protocol) {
			found = append(found, p)
		}
	}
	protocol, _ := model.ParseProtocol(strings.ToUpper(ref.Protocol)) // ParseDestination has checked it
	switch {
	case len(found) != 1 && ref.number() != 0:
		return port{ref.number(), protocol}, nil // TCP, if it has both; the explanation has the Service's ports
	case len(all) == 0:
		return port{}, fmt.Errorf("Service %v has no ports", s.NamespacedName)
	case len(found) == 0:
		return port{}, fmt.Errorf("Service %v has no port named %q; its ports are %s", s.NamespacedName, ref.Port, strings.Join(all, ", "))
	case len(found) > 1:
		return port{}, fmt.Errorf("which port of Service %v? its ports are %s; give one, as in %s:%d",
			s.NamespacedName, strings.Join(all, ", "), s.Name, found[0].Port)
	}
	protocol, _ = model.ParseProtocol(found[0].Protocol)
	return port{uint16(found[0].Port), protocol}, nil
}
