package names

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Kind is the kind of thing that a Ref names.
type Kind string

// The kinds.
const (
	Address     Kind = "address"
	Process     Kind = "node process" // of the node that decides
	Node        Kind = "Node"
	Pod         Kind = "Pod"
	Service     Kind = "Service"
	Host        Kind = "name" // of a Service in DNS
	Deployment  Kind = "Deployment"
	StatefulSet Kind = "StatefulSet"
	DaemonSet   Kind = "DaemonSet"
	ReplicaSet  Kind = "ReplicaSet"
)

// kindWords are the words for kinds, as kubectl has them.
var kindWords = map[string]Kind{
	"node": Node, "nodes": Node, "no": Node,
	"pod": Pod, "pods": Pod, "po": Pod,
	"service": Service, "services": Service, "svc": Service,
	"deployment": Deployment, "deployments": Deployment, "deploy": Deployment,
	"statefulset": StatefulSet, "statefulsets": StatefulSet, "sts": StatefulSet,
	"daemonset": DaemonSet, "daemonsets": DaemonSet, "ds": DaemonSet,
	"replicaset": ReplicaSet, "replicasets": ReplicaSet, "rs": ReplicaSet,
}

// Workload reports whether objects of the kind make pods.
func (k Kind) Workload() bool {
	return slices.Contains([]Kind{Deployment, StatefulSet, DaemonSet, ReplicaSet}, k)
}

// Ref is a name as given.
type Ref struct {
	Kind      Kind
	Namespace string // "": none was given
	Name      string
	Addr      netip.Addr // of an Address

	// Of a destination.
	Port     string // a number, or a name; "": none was given
	Protocol string // tcp, udp or sctp; "": none was given

	text string
}

// String returns the name as given.
func (r Ref) String() string { return r.text }

const (
	wantSource = `want an IP address, "node", or a name like pod/NAME, svc/NAME, deploy/NAME or node/NAME`
	wantDest   = "want ADDRESS:PORT[/PROTOCOL], for example 10.96.0.10:80/tcp or [fd00::1]:80/tcp, " +
		"or NAME:PORT[/PROTOCOL], for example svc/web:http or web.default.svc:80/udp"
)

// ParseSource reads the name of a client.
func ParseSource(s string) (Ref, error) {
	r := Ref{text: s}
	if s == "node" {
		r.Kind = Process
		return r, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return r.address(a, "source")
	}
	if err := r.parseName(s); err != nil {
		return r, fmt.Errorf("%s; got %q", wantSource, s)
	}
	return r, nil
}

// ParseDestination reads the name of a destination, with a port and a protocol.
func ParseDestination(s string) (Ref, error) {
	r := Ref{text: s}
	wrong := fmt.Errorf("%s; got %q", wantDest, s)
	name, port := cutPort(s)
	if port != "" {
		var found bool
		r.Port, r.Protocol, found = strings.Cut(port, "/")
		p, err := model.ParseProtocol(strings.ToUpper(r.Protocol))
		switch {
		case err != nil || found && r.Protocol == "":
			return r, fmt.Errorf("want protocol tcp, udp or sctp; got %q in %q", r.Protocol, s)
		case found:
			r.Protocol = p.String()
		}
	}
	if n, err := strconv.Atoi(r.Port); err == nil && (n < 1 || n > 65535) {
		return r, fmt.Errorf("destination %q: port %d is not between 1 and 65535", s, n)
	}
	if name == "node" {
		r.Kind = Process
		return r, r.needNumber()
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	switch {
	case err == nil && (a.Zone() != "" || r.number() == 0 || a.Is6() != strings.HasPrefix(name, "[")):
		return r, wrong
	case err == nil:
		return r.address(a, "destination")
	}
	if _, err := netip.ParseAddr(s); err == nil || r.parseName(name) != nil {
		return r, wrong
	}
	if r.Kind == Node || r.Kind == Pod || r.Kind.Workload() {
		return r, r.needNumber()
	}
	return r, nil
}

// cutPort cuts NAME[:PORT[/PROTOCOL]] at the colon.
func cutPort(s string) (name, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return s, ""
	}
	return s[:i], s[i+1:]
}

func (r Ref) needNumber() error {
	if r.number() == 0 {
		return fmt.Errorf("destination %q: want the number of a port, as in %s:8080; only Services' ports have names", r.text, r.text)
	}
	return nil
}

// number returns the number of the port, or 0.
func (r Ref) number() uint16 {
	n, _ := strconv.ParseUint(r.Port, 10, 16) // 0 for a name
	return uint16(n)
}

func (r Ref) address(a netip.Addr, role string) (Ref, error) {
	switch {
	case a.Zone() != "":
		return r, fmt.Errorf("%v: an address with a zone cannot be the %s of a connection here", a, role)
	case a.IsUnspecified() || a.IsMulticast():
		return r, fmt.Errorf("%v cannot be the %s of a connection", a, role)
	}
	r.Kind, r.Addr = Address, a.Unmap()
	return r, nil
}

// parseName reads KIND/NAME, KIND/NAMESPACE/NAME or the name of a Service in DNS.
func (r *Ref) parseName(s string) error {
	parts := strings.Split(s, "/")
	kind, ok := kindWords[strings.ToLower(parts[0])]
	switch {
	case len(parts) == 1:
		r.Kind, r.Name = Host, strings.TrimSuffix(s, ".")
	case ok && len(parts) == 2:
		r.Kind, r.Name = kind, parts[1]
	case ok && len(parts) == 3 && kind != Node:
		r.Kind, r.Namespace, r.Name = kind, parts[1], parts[2]
	default:
		return errName
	}
	for _, name := range []string{r.Name, r.Namespace} {
		if strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
			return errName
		}
	}
	if name, namespace, ok := strings.Cut(r.Name, "."); ok && r.Kind == Service && r.Namespace == "" {
		r.Name, r.Namespace = name, namespace // no Service has a dot in its name; svc/web.shop.svc is a name in DNS
		if strings.Contains(namespace, ".") {
			return errName
		}
	}
	if r.Name == "" || len(parts) == 3 && r.Namespace == "" {
		return errName
	}
	return nil
}
