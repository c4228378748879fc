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
	Address Kind = "address"
	Process Kind = "node process" // of the node that decides
	Node    Kind = "node"
	Pod     Kind = "pod"
	Service Kind = "service"
)

var kindWords = map[string]Kind{
	"node": Node, "nodes": Node, "no": Node, "pod": Pod, "pods": Pod, "po": Pod,
	"service": Service, "services": Service, "svc": Service,
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
	wantSource = `want an IP address, "node", pod/NAME or node/NAME`
	wantDest   = "want a Service as NAME:PORT, NAMESPACE/NAME:PORT, svc/NAME:PORT or NAME.NAMESPACE.svc:PORT, " +
		"or ADDRESS:PORT, pod/NAME:PORT or node/NAME:PORT, each with /tcp, /udp or /sctp after the port"
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
	switch {
	case !r.parseName(s) || !strings.Contains(s, "/"):
		return r, fmt.Errorf("%s; got %q", wantSource, s)
	case r.Kind == Service:
		return r, fmt.Errorf("%s: a Service does not open connections: name one of its pods, as in pod/NAME", s)
	}
	return r, nil
}

// ParseService reads the name of a Service, without a port.
func ParseService(s string) (Ref, error) {
	r := Ref{text: s}
	if !r.parseName(s) || r.Kind != Service {
		return r, fmt.Errorf("want a Service as NAME or NAMESPACE/NAME; got %q", s)
	}
	return r, nil
}

// ParseDestination reads the name of a destination, with a port and a protocol.
func ParseDestination(s string) (Ref, error) {
	r := Ref{text: s}
	name, port := s, "" // NAME[:PORT[/PROTOCOL]]
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		name, port = s[:i], s[i+1:]
	}
	var given bool
	r.Port, r.Protocol, given = strings.Cut(strings.ToLower(port), "/")
	_, err := model.ParseProtocol(strings.ToUpper(r.Protocol))
	n, numeric := strconv.Atoi(r.Port)
	a, named := netip.ParseAddr(strings.Trim(name, "[]"))
	switch {
	case err != nil || given && r.Protocol == "":
		return r, fmt.Errorf("destination %q: unknown protocol %q (tcp, udp, sctp)", s, r.Protocol)
	case numeric == nil && (n < 1 || n > 65535):
		return r, fmt.Errorf("destination %q: port %d is not between 1 and 65535", s, n)
	case named == nil && a.Zone() == "" && r.number() != 0 && a.Is6() == strings.HasPrefix(name, "["):
		return r.address(a, "destination")
	case name == "node":
		r.Kind = Process
	case named == nil || !r.parseName(name):
		return r, fmt.Errorf("%s; got %q", wantDest, s)
	}
	if r.Kind != Service && r.number() == 0 {
		const text = "destination %q: want the number of a port, as in %[1]s:8080; only Services' ports have names"
		return r, fmt.Errorf(text, s)
	}
	return r, nil
}

// number returns the number of the port, or 0.
func (r Ref) number() uint16 {
	n, _ := strconv.ParseUint(r.Port, 10, 16) // 0 for a name
	return uint16(n)
}

func (r Ref) address(a netip.Addr, role string) (Ref, error) {
	if a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
		return r, fmt.Errorf("%v cannot be the %s of a connection", a, role)
	}
	r.Kind, r.Addr = Address, a.Unmap()
	return r, nil
}

// parseName reads KIND/NAME, KIND/NAMESPACE/NAME or, of a Service, NAMESPACE/NAME, NAME and NAME.NAMESPACE.svc.
func (r *Ref) parseName(s string) bool {
	parts := strings.Split(s, "/")
	r.Kind = Service
	if kind, ok := kindWords[strings.ToLower(parts[0])]; ok && len(parts) > 1 {
		r.Kind, parts = kind, parts[1:]
	}
	if r.Kind == Service && len(parts) == 1 {
		labels := strings.Split(strings.TrimSuffix(parts[0], "."), ".")
		if len(labels) == 2 || len(labels) > 2 && labels[2] == "svc" { // what follows is the domain of the cluster
			parts = []string{labels[1], labels[0]}
		}
	}
	isNoName := func(s string) bool {
		return s == "" || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-.") != ""
	}
	last := len(parts) - 1
	if last > 1 || last == 1 && r.Kind == Node || slices.ContainsFunc(parts, isNoName) {
		return false
	}
	r.Namespace, r.Name = strings.Join(parts[:last], ""), parts[last]
	return r.Kind != Service || !strings.Contains(r.Name, ".")
}
