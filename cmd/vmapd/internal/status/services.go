package status

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Services is the answer about service ports.
type Services struct {
	Items []Service `json:"items"` // Services that fail come first
	// Left is the number of further items that a limit has left out.
	Left int `json:"left,omitempty"`

	// For Tables: with namespaces, with further columns, and what is said if there are no items.
	Namespaces, Wide bool   `json:"-"`
	None             string `json:"-"`
}

// Service is one port of one Service in one IP family or, without a port, a Service of which nothing is served.
type Service struct {
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	PortName   string       `json:"portName,omitempty"`
	Port       uint16       `json:"port,omitempty"`     // of its cluster IP
	Protocol   string       `json:"protocol,omitempty"` // tcp, udp or sctp
	Family     string       `json:"family,omitempty"`   // IPv4 or IPv6
	NodePort   uint16       `json:"nodePort,omitempty"`
	ClusterIP  netip.Addr   `json:"clusterIP,omitzero"`
	External   []netip.Addr `json:"externalIPs,omitempty"` // those of load balancers, too
	Endpoints  int          `json:"endpoints"`             // that get connections from inside the cluster
	OnThisNode int          `json:"endpointsOnThisNode"`
	State      State        `json:"state"`
	Reason     string       `json:"reason,omitempty"` // of the state
	Since      time.Time    `json:"since,omitzero"`   // programmed as it is
	Problems   int          `json:"problems,omitempty"`
}

// State is what happens to new connections: the outcome, or one of these.
type State = report.Outcome

// The states of service ports alone.
const (
	Partly  State = "partly dropped" // it depends on the address
	Waiting State = "waiting"        // the rules are not in the kernel yet
	LeftOut State = "left out"       // by a problem or a budget
)

var worstFirst = []State{Waiting, LeftOut, report.Rejected, report.Dropped, Partly, report.Forwarded}

func (s *Service) level() report.Level {
	switch {
	case s.State == report.Forwarded && s.Problems == 0:
		return report.OK
	case s.State == Waiting, s.State == LeftOut:
		return report.Fail
	}
	return report.Warn
}

// Services returns the service ports that a filter chooses, at most limit, or all with 0.
func (v *View) Services(filter Filter, limit int) Services {
	problems, items := v.problems(filter), []Service{}
	served := map[model.NamespacedName]bool{}
	for _, sp := range v.Ports(filter) {
		s := v.service(sp)
		s.Problems = len(problems[sp.Name.NamespacedName])
		served[sp.Name.NamespacedName] = true
		items = append(items, s)
	}
	for name, list := range problems {
		if !served[name] {
			items = append(items, Service{
				Namespace: name.Namespace, Name: name.Name, State: LeftOut, Reason: reasonOf(list[0]), Problems: len(list),
			})
		}
	}
	slices.SortStableFunc(items, func(a, b Service) int {
		worse := cmp.Compare(slices.Index(worstFirst, a.State), slices.Index(worstFirst, b.State))
		return cmp.Or(worse, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	left := 0
	if limit > 0 && len(items) > limit {
		left, items = len(items)-limit, items[:limit]
	}
	return Services{Items: items, Left: left}
}

// Names returns the Services of a name that are served, or of which a problem keeps something from being served.
func (v *View) Names(name string) (list []model.NamespacedName) {
	for _, s := range v.Services(Filter{Name: name}, 0).Items {
		list = append(list, model.NamespacedName{Namespace: s.Namespace, Name: s.Name})
	}
	return list
}

func (v *View) problems(filter Filter) map[model.NamespacedName][]model.Problem {
	if v.Snapshot == nil {
		return nil
	}
	found := map[model.NamespacedName][]model.Problem{}
	for _, p := range v.Snapshot.Problems {
		if n := p.Object.NamespacedName; p.Object.Kind == "Service" && filter.matches(n, "") {
			found[n] = append(found[n], p)
		}
	}
	return found
}

func reasonOf(p model.Problem) string { return strings.TrimPrefix(p.Field+": "+p.Message, ": ") }

func (v *View) service(sp *model.ServicePort) Service {
	s := Service{
		Namespace: sp.Name.Namespace, Name: sp.Name.Name, PortName: sp.Name.Port, Protocol: sp.Name.Protocol.String(),
		Family: sp.Family.String(),
	}
	inside := model.Cluster
	for _, fe := range sp.Frontends {
		switch fe.Kind {
		case model.ClusterIP:
			s.ClusterIP, s.Port, inside = fe.VIP.Addr, fe.VIP.Port, fe.TrafficPolicy
		case model.NodePort:
			s.NodePort = fe.VIP.Port
		case model.LoadBalancerIP, model.ExternalIP:
			s.External, s.Port = append(s.External, fe.VIP.Addr), fe.VIP.Port
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
	if s.State, s.Reason = v.state(sp); s.State != Waiting {
		s.Since = v.Families[sp.Family].since(sp)
	}
	return s
}

// state returns what happens to new connections to a service port, and the reason unless all are forwarded.
func (v *View) state(sp *model.ServicePort) (State, string) {
	if family := &v.Families[sp.Family]; !family.isProgrammed(sp) {
		return Waiting, cmp.Or(family.Error, "not in the kernel yet")
	}
	var did [3]int // by action
	for _, fe := range sp.Frontends {
		did[fe.Action]++
	}
	internal, external := sp.NoLocalEndpoints()
	const none = "no endpoint is on this node, and the traffic policy is Local"
	switch {
	case len(sp.Frontends) == 0:
		return LeftOut, "none of its addresses belongs to it"
	case did[model.Reject] > 0:
		return report.Rejected, "no endpoint is ready"
	case did[model.Drop] == len(sp.Frontends):
		return report.Dropped, none
	case internal:
		return Partly, "to the cluster IP: " + none
	case external:
		return Partly, "from outside: " + none
	}
	return report.Forwarded, ""
}

// Tables has a row for each service port.
func (s *Services) Tables(now time.Time) []report.Table {
	shown := func(cells ...string) []string {
		if !s.Wide {
			cells = slices.Delete(cells, 5, 9)
		}
		if !s.Namespaces {
			cells = cells[1:]
		}
		return cells
	}
	t := report.Table{Columns: shown("NAMESPACE", "NAME", "PORT", "CLUSTER-IP", "ENDPOINTS",
		"LOCAL", "PORT-NAME", "NODE-PORT", "EXTERNAL-IP", "AGE", "STATE")}
	states := States{}
	for _, s := range s.Items {
		states[s.State]++
		cells := shown(s.Namespace, s.Name, s.port(), unlessZero(s.ClusterIP), strconv.Itoa(s.Endpoints),
			strconv.Itoa(s.OnThisNode), s.PortName, unlessZero(s.NodePort), report.List(s.External, 3),
			report.Age(s.Since, now), s.sentence())
		t.Rows = append(t.Rows, report.Row{Level: s.level(), Cells: cells})
	}
	t.Notes = []string{fmt.Sprintf("%s: %v", report.Plural(len(s.Items), "service port"), states)}
	if len(s.Items) == 0 {
		t.Notes = []string{cmp.Or(s.None, "no Services")}
	}
	return []report.Table{t}
}

func (s *Service) port() string {
	if s.Port == 0 {
		return s.Protocol
	}
	return fmt.Sprintf("%d/%s", s.Port, s.Protocol)
}

func (s *Service) sentence() string {
	state := string(s.State)
	if s.Reason != "" {
		state += ": " + s.Reason
	}
	if s.Problems > 0 && s.State != LeftOut {
		state += "; " + report.Plural(s.Problems, "problem")
	}
	return state
}

func unlessZero[T comparable](v T) string {
	if v == *new(T) {
		return ""
	}
	return fmt.Sprint(v)
}
