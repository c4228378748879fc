package explain

import (
	"fmt"
	"slices"
)

// Probe has the answers of real connections.
type Probe struct {
	// From is where the connections were made, in words.
	From string `json:"from"`
	// Destination is the answer at the explained destination, Endpoints those of used endpoints without
	// the Service, and NotProbed the number of the endpoints left out.
	Destination Answer   `json:"destination"`
	Endpoints   []Answer `json:"endpoints,omitempty"`
	NotProbed   int      `json:"notProbed,omitempty"`
}

// Answer is the answer to one connection.
type Answer struct {
	Address string `json:"address"`
	Pod     string `json:"pod,omitempty"`
	// Result is connected, refused, silent, unreachable, or failed: the probe itself has failed.
	Result       string  `json:"result"`
	Detail       string  `json:"detail,omitempty"`
	Milliseconds float64 `json:"milliseconds,omitempty"`
}

// The results.
const (
	AnswerConnected   = "connected"
	AnswerRefused     = "refused"
	AnswerSilent      = "silent"
	AnswerUnreachable = "unreachable"
	AnswerFailed      = "failed"
)

// AddProbe adds the answers to an explanation, as its last step.
func (e *Explanation) AddProbe(p Probe) {
	for i, a := range p.Endpoints {
		if j := slices.IndexFunc(e.Endpoints.Used, func(u Endpoint) bool { return u.Address == a.Address }); j >= 0 {
			p.Endpoints[i].Pod = e.Endpoints.Used[j].Pod
		}
	}
	e.Probe = &p
	s := Step{Text: fmt.Sprintf("Real connections, %s:", p.From)}
	width := len(p.Destination.Address)
	for _, a := range p.Endpoints {
		width = max(width, len(a.Address))
	}
	whom := "the destination"
	if e.Destination.Service != nil {
		whom = "the Service"
	}
	s.Lines = append(s.Lines, fmt.Sprintf("  %-*s  %s: %s", width, p.Destination.Address, whom, e.sayAnswer(p.Destination, false)))
	for _, a := range p.Endpoints {
		who := "an endpoint"
		if a.Pod != "" {
			who = e.shortPod(a.Pod)
		}
		s.Lines = append(s.Lines, fmt.Sprintf("  %-*s  %s: %s", width, a.Address, who, e.sayAnswer(a, true)))
	}
	if p.NotProbed > 0 {
		s.Lines = append(s.Lines, fmt.Sprintf("  and %d more endpoints, which were not tried", p.NotProbed))
	}
	e.Steps = append(e.Steps, s)
	e.adviseProbe()
}

// sayAnswer says what an answer means.
func (e *Explanation) sayAnswer(a Answer, endpoint bool) string {
	udp := e.Destination.Protocol == "udp"
	text := ""
	switch a.Result {
	case AnswerConnected:
		text = fmt.Sprintf("connected, after %.1f ms", a.Milliseconds)
		if udp {
			text = fmt.Sprintf("a reply, after %.1f ms", a.Milliseconds)
		}
	case AnswerRefused:
		text = "refused"
		if endpoint {
			text = fmt.Sprintf("refused by the pod: nothing listens on %s", portOfAddress(a.Address))
		}
	case AnswerSilent:
		text = "silent: no answer in time"
		if udp {
			text = "silent, as UDP may be: no reply to an empty datagram, and no error"
		}
	case AnswerUnreachable:
		text = "unreachable"
	default:
		text = "not tried"
	}
	if a.Detail != "" {
		text += " (" + a.Detail + ")"
	}
	return text
}

func portOfAddress(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[i+1:]
		}
	}
	return address
}

// adviseProbe says where to look on, by the answers.
func (e *Explanation) adviseProbe() {
	p := e.Probe
	all := func(result string) bool {
		return len(p.Endpoints) > 0 && !slices.ContainsFunc(p.Endpoints, func(a Answer) bool { return a.Result != result })
	}
	at := p.Destination.Result
	switch {
	case all(AnswerRefused):
		e.sayNobodyListens()
	case slices.ContainsFunc(p.Endpoints, func(a Answer) bool { return a.Result == AnswerRefused }):
		e.next("Some endpoints are ready, and nothing listens on their port: does the readiness probe ask that port?")
	case all(AnswerSilent) && e.Destination.Protocol != "udp", all(AnswerUnreachable):
		e.next("The endpoints do not answer without the Service either: a NetworkPolicy, a firewall, or the pods' network. " +
			"vmapd trace shows what the kernel does with the connection.")
	case all(AnswerConnected) && at != AnswerConnected:
		e.next("The endpoints answer, and %s does not: vmapd trace shows what the kernel does with the connection.", e.Destination.Address)
	}
}

// sayNobodyListens names the field of the Service that leads to a port on which nothing listens.
func (e *Explanation) sayNobodyListens() {
	eps := e.Endpoints
	port := portOfAddress(e.Probe.Endpoints[0].Address)
	if eps.TargetPortField == "" {
		e.next("Nothing listens on port %s of the endpoints: the port in the EndpointSlice is wrong, or the program does not run.", port)
		return
	}
	e.next("%s of Service %v is %s, and nothing listens on port %s of its pods: the field is wrong, or the program listens elsewhere, or on its loopback address only.",
		eps.TargetPortField, *e.Destination.Service, eps.TargetPort, port)
}
