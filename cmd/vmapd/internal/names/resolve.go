package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Query asks for a connection.
type Query struct {
	From, To Ref
	// Namespace is that of names without one; "": any namespace in which alone there is the name.
	Namespace string
	// Family is the wanted one; nil: either.
	Family *model.Family
	// Via is the kind of the Service's address: clusterIP ("" is the same), nodePort, loadBalancer or
	// externalIP.
	Via string
	// NodeName is the node that decides; "": where the client is, or else Default.
	NodeName string
	// Default is the node that decides about clients of an unknown place; may be "".
	Default string
	// ClusterDomain is the last part of names in DNS; "": cluster.local.
	ClusterDomain string
}

// The values of Query.Via.
const (
	ViaClusterIP    = "clusterIP"
	ViaNodePort     = "nodePort"
	ViaLoadBalancer = "loadBalancer"
	ViaExternalIP   = "externalIP"
)

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
	notes   []string
}

// ports are the port of a destination, as a number.
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
	if r.NodeName == "" {
		r.NodeName = from.node
	}
	if r.NodeName == "" && q.To.Kind == Node && from.addrs != nil {
		r.NodeName = q.To.Name // connections to a node's address from elsewhere are decided there
	}
	if r.NodeName == "" {
		r.NodeName = q.Default
	}
	to, at, err := r.server()
	if err != nil {
		return Answer{}, err
	}
	out := Answer{
		NodeName: r.NodeName, Client: from.what, Server: to.what, Protocol: at.protocol,
		Process: from.process, Notes: slices.Concat(from.notes, to.notes),
	}
	return out, r.match(&out, from, to, at.number)
}

type resolver struct {
	*Directory
	Query
}

// match chooses addresses of one family for both ends.
func (r *resolver) match(out *Answer, from, to end, number uint16) error {
	wanted := func(a netip.Addr) bool { return r.Family == nil || model.FamilyOf(a) == *r.Family }
	froms := slices.DeleteFunc(slices.Clone(from.addrs), func(a netip.Addr) bool { return !wanted(a) })
	tos := slices.DeleteFunc(slices.Clone(to.addrs), func(a netip.Addr) bool { return !wanted(a) })
	for _, end := range []struct {
		end
		ref  Ref
		left []netip.Addr
	}{{from, r.From, froms}, {to, r.To, tos}} {
		if len(end.left) == 0 && len(end.addrs) > 0 {
			return fmt.Errorf("%s has no %v address: it has %s", cmp.Or(end.what, end.ref.text), *r.Family, join(end.addrs))
		}
	}
	var families []model.Family
	for _, t := range tos {
		if slices.Contains(families, model.FamilyOf(t)) {
			continue
		}
		i := slices.IndexFunc(froms, func(f netip.Addr) bool { return f.Is4() == t.Is4() })
		if i < 0 && len(from.addrs) > 0 {
			continue
		}
		families = append(families, model.FamilyOf(t))
		if len(families) > 1 {
			continue
		}
		out.Dest = netip.AddrPortFrom(t, number)
		if i >= 0 {
			out.Source = froms[i]
		}
	}
	switch {
	case len(families) == 0 && r.From.Kind == Address && r.To.Kind == Address:
		return fmt.Errorf("--from: %v is an %v address, but %v is an %v address: there is no connection between them",
			froms[0], model.FamilyOf(froms[0]), tos[0], model.FamilyOf(tos[0]))
	case len(families) == 0:
		return fmt.Errorf("%s and %s have no IP family in common: the addresses are %s and %s",
			cmp.Or(from.what, r.From.text), cmp.Or(to.what, r.To.text), join(from.addrs), join(to.addrs))
	case len(families) > 1:
		out.Notes = append(out.Notes, fmt.Sprintf("%v is also possible (--family %v)", families[1], families[1]))
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
	case Address:
		return end{addrs: []netip.Addr{ref.Addr}}, nil
	case Process:
		return end{process: true}, nil
	case Node:
		n, err := r.node(ref.Name)
		if err != nil {
			return end{}, err
		}
		e := end{addrs: addrsOf(n.Addresses), node: n.Name, what: "a process of the node " + n.Name, process: r.NodeName == "" || r.NodeName == n.Name}
		return e, e.needAddrs()
	case Pod:
		return r.pod(ref)
	case Service, Host:
		return end{}, fmt.Errorf("%s: a Service does not open connections: name one of its pods, as in pod/NAME or deploy/NAME", ref)
	default:
		return r.workload(ref)
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
	if r.Via != "" && ref.Kind != Service && ref.Kind != Host {
		return end{}, at, fmt.Errorf("--via %s: only a Service has several kinds of addresses; %s is none", r.Via, ref)
	}
	var e end
	switch ref.Kind {
	case Address:
		return end{addrs: []netip.Addr{ref.Addr}}, at, nil
	case Process, Node:
		name := cmp.Or(ref.Name, r.NodeName)
		n, err := r.node(name)
		if err != nil {
			return end{}, at, err
		}
		e = end{addrs: addrsOf(n.Addresses), what: "the node " + n.Name}
		if len(n.Addresses) > 1 {
			e.notes = append(e.notes, fmt.Sprintf("the node %s has the addresses %s; the first of the family is taken", n.Name, strings.Join(n.Addresses, ", ")))
		}
		return e, at, e.needAddrs()
	case Pod:
		e, err = r.pod(ref)
	case Service:
		return r.service(ref)
	case Host:
		return r.host(ref)
	default:
		e, err = r.workload(ref)
	}
	return e, at, err
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
		return model.Node{}, fmt.Errorf("which node? give its name (--node-name)%s", instead("", all))
	}
	return model.Node{}, fmt.Errorf("there is no Node %s%s", name, instead(name, all))
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
		case name.Namespace == "":
			others = append(others, n.String())
		case n.Name == name.Name:
			others = append(others, n.String())
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 1:
		return one, nil
	case 0:
		wrong := name.Name
		if name.Namespace == "" {
			return name, fmt.Errorf("there is no %s %s in any namespace%s", kind, wrong, insteadOfAny(wrong, others))
		}
		return name, fmt.Errorf("there is no %s %s in namespace %s%s", kind, wrong, name.Namespace, instead(wrong, others))
	}
	return name, fmt.Errorf("there are several %ss %s: %s; give the namespace (-n), or %s/NAMESPACE/NAME",
		kind, ref.Name, strings.Join(found, ", "), strings.ToLower(string(kind)))
}

// insteadOfAny is instead for names with namespaces.
func insteadOfAny(name string, all []string) string {
	var bare []string
	for _, n := range all {
		bare = append(bare, n[strings.LastIndexByte(n, '/')+1:])
	}
	near := Nearest(name, bare)
	if len(near) == 0 {
		return instead(name, all)
	}
	var list []string
	for i, n := range all {
		if slices.Contains(near, bare[i]) && len(list) < fewNames {
			list = append(list, n)
		}
	}
	return "; did you mean " + strings.Join(list, " or ") + "?"
}
