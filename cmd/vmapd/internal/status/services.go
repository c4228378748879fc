package status

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/model"
)

// PortID names a port of a Service in one IP family.
type PortID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	PortName  string `json:"portName,omitempty"`
	Port      uint16 `json:"port,omitempty"`     // of its cluster IP
	Protocol  string `json:"protocol,omitempty"` // tcp, udp or sctp
	Family    string `json:"family,omitempty"`   // IPv4 or IPv6
}

func idOf(sp *model.ServicePort) PortID {
	id := PortID{sp.Name.Namespace, sp.Name.Name, sp.Name.Port, 0, sp.Name.Protocol.String(), sp.Family.String()}
	for _, fe := range sp.Frontends {
		if fe.Kind != model.NodePort {
			id.Port = fe.VIP.Port
			break
		}
	}
	return id
}

// Services is the answer about service ports.
type Services struct {
	Items []Service `json:"items"`
	// Left is the number of further items that a limit has left out.
	Left int `json:"left,omitempty"`
}

// Service is one port of one Service in one IP family or, without a port, a Service of which nothing is
// served.
type Service struct {
	PortID
	NodePort   uint16       `json:"nodePort,omitempty"`
	ClusterIP  netip.Addr   `json:"clusterIP,omitzero"`
	Addresses  []netip.Addr `json:"addresses,omitempty"` // the others: of load balancers, and external IPs
	Endpoints  int          `json:"endpoints"`           // that get connections from inside the cluster
	OnThisNode int          `json:"endpointsOnThisNode"`
	Draining   int          `json:"draining,omitempty"` // endpoints with old connections only
	State      State        `json:"state"`
	Reason     string       `json:"reason,omitempty"` // of the state
	Since      time.Time    `json:"since,omitzero"`   // programmed as it is
	Problems   int          `json:"problems,omitempty"`
	// Connections is the number of new connections since counting began; nil: they are not counted.
	Connections *uint64 `json:"connections,omitempty"`

	// Details is there in an answer about one Service.
	Details *Details `json:"details,omitempty"`
}

// Details are those of a service port.
type Details struct {
	Frontends        []Frontend     `json:"frontends,omitempty"`
	Algorithm        string         `json:"algorithm,omitempty"` // that chooses an endpoint
	AffinitySeconds  int64          `json:"affinitySeconds,omitempty"`
	GraceSeconds     int64          `json:"connectionGraceSeconds,omitempty"`
	SourceRanges     []netip.Prefix `json:"sourceRanges,omitempty"`
	ProblemsInDetail []Problem      `json:"problems,omitempty"` // of the Service, with its first item
}

// Frontend is an address, or a node port, of a service port.
type Frontend struct {
	Kind          string     `json:"kind"`             // for example "cluster IP"
	Address       netip.Addr `json:"address,omitzero"` // none: a node port
	Port          uint16     `json:"port"`
	State         State      `json:"state"`
	TrafficPolicy string     `json:"trafficPolicy"` // cluster or local
	ShortCircuit  bool       `json:"shortCircuit,omitempty"`
	Restricted    bool       `json:"restricted,omitempty"` // by source ranges
}

// Problem is one of an object, see [model.Problem].
type Problem struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Field     string `json:"field,omitempty"`
	Message   string `json:"message"`
	Budget    string `json:"budget,omitempty"`
}

func (p Problem) String() string {
	return model.Problem{
		Object: model.ObjectRef{Kind: p.Kind, NamespacedName: model.NamespacedName{Namespace: p.Namespace, Name: p.Name}},
		Field:  p.Field, Message: p.Message,
	}.Error()
}

func newProblem(p model.Problem) Problem {
	return Problem{p.Object.Kind, p.Object.Namespace, p.Object.Name, p.Field, p.Message, string(p.Budget)}
}

// State is what happens to new connections.
type State string

// The states.
const (
	Forwarded State = "forwarded" // to an endpoint
	Refused   State = "refused"   // with a TCP reset or an ICMP error
	Dropped   State = "dropped"   // without an answer
	Partly    State = "partly"    // it depends on the address: some are dropped
	Waiting   State = "waiting"   // the rules are not in the kernel yet
	LeftOut   State = "left out"  // by a problem or a budget
)

// Services returns the service ports that a filter chooses, at most limit, or all with 0. Details are
// added if the filter names a Service.
func (v *View) Services(filter Filter, limit int, counts Counts) Services {
	problems := v.problems(filter)
	var out Services
	ports := v.Ports(filter)
	if limit > 0 && len(ports) > limit {
		out.Left = len(ports) - limit
		ports = ports[:limit]
	}
	out.Items = make([]Service, 0, len(ports))
	for i, sp := range ports {
		s := v.service(sp)
		found := problems[sp.Name.NamespacedName]
		s.Problems = len(found)
		s.Connections = counts.of(sp)
		if filter.Name != "" {
			s.Details = details(sp)
			if i == 0 || ports[i-1].Name.NamespacedName != sp.Name.NamespacedName {
				s.Details.ProblemsInDetail = found
			}
		}
		out.Items = append(out.Items, s)
	}
	v.addLeftOut(&out, problems, filter, limit)
	return out
}

// problems returns the problems of the Services that a filter chooses.
func (v *View) problems(filter Filter) map[model.NamespacedName][]Problem {
	if v.Snapshot == nil {
		return nil
	}
	found := map[model.NamespacedName][]Problem{}
	for _, p := range v.Snapshot.Problems() {
		if n := p.Object.NamespacedName; p.Object.Kind == "Service" && filter.matches(n, "") {
			found[n] = append(found[n], newProblem(p))
		}
	}
	return found
}

// addLeftOut adds the Services with problems that have no port in any family.
func (v *View) addLeftOut(out *Services, problems map[model.NamespacedName][]Problem, filter Filter, limit int) {
	if len(problems) == 0 || out.Left > 0 {
		return
	}
	served := map[model.NamespacedName]bool{}
	for i := range out.Items {
		served[model.NamespacedName{Namespace: out.Items[i].Namespace, Name: out.Items[i].Name}] = true
	}
	for name, list := range problems {
		if served[name] {
			continue
		}
		s := Service{PortID: PortID{Namespace: name.Namespace, Name: name.Name}, State: LeftOut, Reason: reasonOf(list[0]), Problems: len(list)}
		if filter.Name != "" {
			s.Details = &Details{ProblemsInDetail: list}
		}
		out.Items = append(out.Items, s)
	}
	slices.SortStableFunc(out.Items, func(a, b Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	if limit > 0 && len(out.Items) > limit {
		out.Left = len(out.Items) - limit
		out.Items = out.Items[:limit]
	}
}

func reasonOf(p Problem) string {
	if p.Field == "" {
		return p.Message
	}
	return p.Field + ": " + p.Message
}

func (v *View) service(sp *model.ServicePort) Service {
	s := Service{PortID: idOf(sp), Draining: len(sp.Draining)}
	inside := model.Cluster
	for _, fe := range sp.Frontends {
		switch fe.Kind {
		case model.ClusterIP:
			s.ClusterIP, inside = fe.VIP.Addr, fe.TrafficPolicy
		case model.NodePort:
			s.NodePort = fe.VIP.Port
		case model.LoadBalancerIP, model.ExternalIP:
			s.Addresses = append(s.Addresses, fe.VIP.Addr)
		}
	}
	for _, e := range sp.Endpoints {
		if e.In(inside) {
			s.Endpoints++
		}
		if e.Local {
			s.OnThisNode++
		}
	}
	s.State, s.Reason = stateOf(sp)
	if family := &v.Families[sp.Family]; family.isProgrammed(sp) {
		s.Since = family.since(sp)
	} else {
		s.State, s.Reason = Waiting, family.Error
	}
	return s
}

// stateOf returns what happens to new connections to a service port, and the reason unless all are forwarded.
func stateOf(sp *model.ServicePort) (State, string) {
	var did [3]int // by action
	for _, fe := range sp.Frontends {
		did[fe.Action]++
	}
	internal, external := sp.NoLocalEndpoints()
	const none = "none of the endpoints is on this node, and the policy is Local"
	switch {
	case len(sp.Frontends) == 0:
		return LeftOut, "none of its addresses belongs to it"
	case did[model.Reject] > 0:
		return Refused, "no endpoint is ready"
	case did[model.Drop] == len(sp.Frontends):
		return Dropped, none
	case internal:
		return Partly, "to the cluster IP, connections are dropped: " + none
	case external:
		return Partly, "from outside, connections are dropped: " + none
	}
	return Forwarded, ""
}

func details(sp *model.ServicePort) *Details {
	d := &Details{
		Algorithm: sp.Algorithm.String(), AffinitySeconds: int64(sp.Affinity / time.Second),
		GraceSeconds: int64(sp.ConnectionGrace / time.Second), SourceRanges: sp.SourceRanges,
	}
	for _, fe := range sp.Frontends {
		f := Frontend{
			Kind: fe.Kind.String(), Port: fe.VIP.Port, State: [...]State{Forwarded, Refused, Dropped}[fe.Action],
			TrafficPolicy: fe.TrafficPolicy.String(), ShortCircuit: fe.ShortCircuit, Restricted: fe.Restricted,
		}
		if fe.Kind != model.NodePort {
			f.Address = fe.VIP.Addr
		}
		d.Frontends = append(d.Frontends, f)
	}
	return d
}
