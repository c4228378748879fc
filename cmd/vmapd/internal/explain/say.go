package explain

import (
	"fmt"
	"strings"
	"time"
)

// say puts the facts into sentences. It looks at nothing but the facts.
func (e *Explanation) say() {
	e.step(e.sayDestination()...)
	if e.Destination.Service != nil {
		e.step(e.saySourceRanges())
		if e.Policy != nil {
			e.step(e.sayPolicy())
		}
		if e.Endpoints != nil {
			e.Steps = append(e.Steps, e.sayEndpoints())
		}
		if e.Choice != nil {
			e.step(e.sayChoice())
			e.Steps = append(e.Steps, e.saySourceAddress())
		}
	}
	e.advise()
	e.Conclusion = e.conclude()
}

// step adds a step that is only sentences; empty ones are left out.
func (e *Explanation) step(sentences ...string) {
	var said []string
	for _, s := range sentences {
		if s != "" {
			said = append(said, s)
		}
	}
	if len(said) > 0 {
		e.Steps = append(e.Steps, Step{Text: said[0], Lines: said[1:]})
	}
}

func (s ServicePort) String() string { return s.Namespace + "/" + s.Name }

// portText is how a port is spoken of.
func (s ServicePort) portText() string {
	if s.Port == "" {
		return "its port without a name"
	}
	return fmt.Sprintf("port %q", s.Port)
}

func (d Destination) String() string {
	if strings.Contains(d.Address, ":") {
		return fmt.Sprintf("[%s]:%d/%s", d.Address, d.Port, d.Protocol)
	}
	return fmt.Sprintf("%s:%d/%s", d.Address, d.Port, d.Protocol)
}

// roles are what an address is to a Service, in words.
func roleText(kind string) string {
	switch kind {
	case "clusterIP":
		return "the cluster IP"
	case "loadBalancerIP":
		return "a load-balancer address"
	case "externalIP":
		return "an external IP"
	}
	return "the node port"
}

func (e *Explanation) sayDestination() []string {
	d := e.Destination
	if d.Service == nil {
		return e.sayFindings()
	}
	of := fmt.Sprintf("of Service %v, %s", *d.Service, d.Service.portText())
	var said []string
	switch d.Kind {
	case "nodePort":
		said = append(said, fmt.Sprintf("%d/%s is the node port %s, and %s is an address of this node where node ports answer.",
			d.Port, d.Protocol, of, d.Address))
	case "localhostNodePort":
		said = append(said, fmt.Sprintf("%d/%s is the node port %s. On loopback, a program of vmapd on this node answers.",
			d.Port, d.Protocol, of))
	default:
		said = append(said, fmt.Sprintf("%v is %s %s.", d, roleText(d.Kind), of))
	}
	for _, r := range d.Rivals {
		port := ""
		if r.Port != "" {
			port = fmt.Sprintf(", port %q,", r.Port)
		}
		why := "is as old and comes first by name"
		if r.Younger {
			why = "is older"
		}
		if r.Service == d.Service.String() {
			said = append(said, fmt.Sprintf("Its port %q asks for the same, but stands after it: it gets no connection here.", r.Port))
			continue
		}
		said = append(said, fmt.Sprintf("Service %s%s asks for the same, but %v %s and has it: %s gets no connection here.",
			r.Service, port, *d.Service, why, r.Service))
	}
	return said
}

func (e *Explanation) saySourceRanges() string {
	r := e.Ranges
	switch {
	case r == nil:
		return ""
	case !r.Applies && e.Destination.Kind != "loadBalancerIP":
		return fmt.Sprintf("loadBalancerSourceRanges (%s) count for load-balancer addresses only, not for %s.",
			strings.Join(r.Ranges, ", "), roleText(e.Destination.Kind))
	case !r.Applies:
		return fmt.Sprintf("loadBalancerSourceRanges (%s) name no range of this IP family, so they do not count for it.",
			strings.Join(r.Ranges, ", "))
	case len(r.Ranges) == 0:
		return "loadBalancerSourceRanges let nobody of this IP family in: no range could be read."
	}
	self := ""
	if r.Self {
		self = fmt.Sprintf(" and, as this node is among them, %s itself", e.Destination.Address)
	}
	who := fmt.Sprintf("Only loadBalancerSourceRanges may connect: %s%s.", strings.Join(r.Ranges, ", "), self)
	if r.Allowed {
		return fmt.Sprintf("%s %s is among them.", who, e.Client.Address)
	}
	return fmt.Sprintf("%s %s is not among them.", who, e.Client.Address)
}

func (e *Explanation) sayPolicy() string {
	p := e.Policy
	is := fmt.Sprintf("%s is %s", p.Field, p.Value)
	const asIf = "it is served as if it had gone out to the load balancer and come in by a better node: endpoints on any node may answer."
	switch {
	case p.ShortCircuit == "pod":
		return is + ", but the client is a pod: " + asIf
	case p.ShortCircuit == "node":
		return is + ", but the client is on this node: " + asIf
	case p.Value == "Cluster":
		return is + ": endpoints on any node may answer."
	case p.Field == "externalTrafficPolicy" && e.Client.Kind == "unknown" && !e.Client.canTellPods():
		return is + ": only endpoints on this node may answer. Pods would be exempt, but this node can't tell them from others."
	}
	return is + ": only endpoints on this node may answer."
}

func (e *Explanation) sayChoice() string {
	c := e.Choice
	n := len(e.Endpoints.Used)
	if n == 1 {
		return "There is only one, so it is chosen."
	}
	if e.Reason == "loopbackForwarder" {
		return "The program chooses one of them for each connection."
	}
	how := map[string]string{
		"random":      "One of them is chosen at random for each connection.",
		"round-robin": "They are chosen in turn, one for each connection.",
		"source-hash": "One of them is chosen by the client's address: the same one while their number stays.",
	}[c.Algorithm]
	if c.AffinitySeconds == 0 {
		return how
	}
	return fmt.Sprintf("sessionAffinity is ClientIP: a client that was here within the last %v gets the same endpoint as then, if it is still one of them. Otherwise: %s",
		time.Duration(c.AffinitySeconds)*time.Second, lowerFirst(how))
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// saySourceAddress says what the endpoints see as their client, all alike or each.
func (e *Explanation) saySourceAddress() Step {
	var order []string
	addrs := map[string][]string{}
	for _, u := range e.Endpoints.Used {
		if addrs[u.SourceNAT] == nil {
			order = append(order, u.SourceNAT)
		}
		addrs[u.SourceNAT] = append(addrs[u.SourceNAT], u.Address)
	}
	if len(order) == 1 {
		return Step{Text: e.saySNAT(order[0])}
	}
	s := Step{Text: "The source address, as the endpoints see it:"}
	for _, reason := range order {
		s.Lines = append(s.Lines, someOf(addrs[reason])+": "+lowerFirst(e.saySNAT(reason)))
	}
	return s
}

func (e *Explanation) saySNAT(reason string) string {
	client := e.Client.Address
	switch reason {
	case "onNode":
		return fmt.Sprintf("The source address stays %s: the endpoint is in this node's own network.", client)
	case "hairpin":
		return "The source address becomes this node's: the endpoint is the client itself, and would otherwise answer past the node."
	case "everyClusterIP":
		return "The source address becomes this node's: --masquerade-all says so for every cluster IP."
	case "offCluster":
		return fmt.Sprintf("The source address becomes this node's: %s counts as no pod, and replies must come back through this node.", client)
	case "externalCluster":
		return "The source address becomes this node's: externalTrafficPolicy is Cluster, and replies must come back through this node."
	case "fromNode":
		return "The source address becomes this node's: a process of this node may have one to which no other machine can answer."
	case "byForwarder":
		return "The endpoint sees this node: the program connects to it anew."
	}
	stays := fmt.Sprintf("The source address stays: the endpoint sees %s.", client)
	if !e.Client.canTellPods() && e.Client.Kind != "node" && e.Destination.Kind == "clusterIP" {
		stays += " If the client is no pod, replies may not find their way back; but this node can't tell pods from others."
	}
	return stays
}

const fewAddresses = 3

// someOf lists addresses, or how many they are.
func someOf(list []string) string {
	switch n := len(list); {
	case n == 1:
		return list[0]
	case n <= fewAddresses:
		return strings.Join(list[:n-1], ", ") + " or " + list[n-1]
	default:
		return fmt.Sprintf("one of %d endpoints", n)
	}
}

func (e *Explanation) conclude() string {
	to := e.Destination.String()
	switch e.Verdict {
	case "forwarded":
		var list []string
		for _, u := range e.Endpoints.Used {
			list = append(list, u.Address)
		}
		return "forwarded to " + someOf(list)
	case "rejected":
		return "refused: " + e.whyRefused()
	case "dropped":
		why := map[string]string{
			"noLocalEndpoints": "the policy is Local, and no endpoint on this node can answer",
			"sourceNotAllowed": e.Client.Address + " is not in loadBalancerSourceRanges",
			"unallocatedAddr":  e.Destination.Address + " is in a range for cluster IPs, and no Service that is served here has it",
		}[e.Reason]
		return fmt.Sprintf("dropped: %s (the client hears nothing, and times out)", why)
	}
	return fmt.Sprintf("not a matter of Services: it goes on to %s as it is", to)
}

func (e *Explanation) whyRefused() string {
	how := `the client gets an ICMP error: "port unreachable"`
	switch {
	case e.Destination.Kind == "localhostNodePort":
		how = "the program on loopback turns it away"
	case e.Destination.Protocol == "tcp":
		how = `the client gets a TCP reset: "connection refused"`
	}
	why := fmt.Sprintf("%s is a cluster IP, and %d/%s no port of its Service", e.Destination.Address, e.Destination.Port, e.Destination.Protocol)
	if e.Reason == "noEndpoints" {
		why = fmt.Sprintf("Service %v, %s, has no endpoint that can answer", *e.Destination.Service, e.Destination.Service.portText())
	}
	return fmt.Sprintf("%s (%s)", why, how)
}
