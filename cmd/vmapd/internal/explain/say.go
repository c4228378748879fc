package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// say makes sentences of the facts, and of nothing else.
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
		if e.Balancing != nil {
			e.step(e.sayBalancing())
			e.Steps = append(e.Steps, e.saySourceAddress())
		}
	}
	e.advise()
	e.Conclusion = e.conclude()
}

// step adds a step of sentences, without the empty ones.
func (e *Explanation) step(sentences ...string) {
	said := slices.DeleteFunc(sentences, func(s string) bool { return s == "" })
	if len(said) > 0 {
		e.Steps = append(e.Steps, Step{Text: said[0], Lines: said[1:]})
	}
}

func (s ServicePort) String() string { return s.Namespace + "/" + s.Name }

// portText names a port.
func (s ServicePort) portText() string {
	if s.Port == "" {
		return "its unnamed port"
	}
	return fmt.Sprintf("port %q", s.Port)
}

func (d Destination) String() string {
	if strings.Contains(d.Address, ":") {
		return fmt.Sprintf("[%s]:%d/%s", d.Address, d.Port, d.Protocol)
	}
	return fmt.Sprintf("%s:%d/%s", d.Address, d.Port, d.Protocol)
}

// roleText names the role of an address in a Service.
func roleText(kind string) string {
	return cmp.Or(map[string]string{
		"clusterIP":      "the cluster IP",
		"loadBalancerIP": "a load-balancer address",
		"externalIP":     "an external IP",
	}[kind], "the node port")
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
		said = append(said, fmt.Sprintf("%d/%s is the node port %s. On loopback, a listener of vmapd answers.",
			d.Port, d.Protocol, of))
	default:
		said = append(said, fmt.Sprintf("%v is %s %s.", d, roleText(d.Kind), of))
	}
	for _, r := range d.Rivals {
		port := ""
		if r.Port != "" {
			port = fmt.Sprintf(", port %q,", r.Port)
		}
		why := "is as old, and its name sorts first"
		if r.Younger {
			why = "is older"
		}
		if r.Service == d.Service.String() {
			said = append(said, fmt.Sprintf("Its port %q claims the same address and port, but comes later in the list: it gets no connections here.", r.Port))
			continue
		}
		said = append(said, fmt.Sprintf("Service %s%s claims the same address and port, but %v %s: %s gets no connections here.",
			r.Service, port, *d.Service, why, r.Service))
	}
	return said
}

func (e *Explanation) saySourceRanges() string {
	r := e.Ranges
	if r == nil {
		return ""
	}
	ranges := strings.Join(r.Ranges[:min(len(r.Ranges), maxRows)], ", ")
	if more := len(r.Ranges) - maxRows; more > 0 {
		ranges += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case !r.Applies && e.Destination.Kind != "loadBalancerIP":
		return fmt.Sprintf("loadBalancerSourceRanges (%s) apply to load-balancer addresses only, not to %s.", ranges, roleText(e.Destination.Kind))
	case !r.Applies:
		return fmt.Sprintf("loadBalancerSourceRanges (%s) have no range of this IP family, so they do not apply to it.", ranges)
	case len(r.Ranges) == 0:
		return "loadBalancerSourceRanges allow no client of this IP family: none of its ranges is valid, or they are too many (the budget sourceRanges)."
	}
	self, is := "", "is not"
	if r.Self {
		self = fmt.Sprintf(" and, because they include this node, %s itself", e.Destination.Address)
	}
	if r.Allowed {
		is = "is"
	}
	return fmt.Sprintf("loadBalancerSourceRanges allow only %s%s. %s %s among them.", ranges, self, e.Client.Address, is)
}

func (e *Explanation) sayPolicy() string {
	p := e.Policy
	is := fmt.Sprintf("%s is %s", p.Field, p.Value)
	const asIf = "the connection is treated as if it came through the load balancer to a node with endpoints: endpoints on any node may answer."
	switch {
	case p.ShortCircuit == "pod":
		return is + ", but the client is a pod: " + asIf
	case p.ShortCircuit == "node":
		return is + ", but the client is on this node: " + asIf
	case p.Value == "Cluster":
		return is + ": endpoints on any node may answer."
	case p.Field == "externalTrafficPolicy" && e.Client.Kind == "unknown" && !e.Client.canTellPods():
		return is + ": only endpoints on this node may answer. Pods would be exempt, but this node cannot tell them from other clients."
	}
	return is + ": only endpoints on this node may answer."
}

func (e *Explanation) sayBalancing() string {
	c := e.Balancing
	n := len(e.Endpoints.Used)
	if n == 1 {
		return "The only usable endpoint is chosen."
	}
	if e.Reason == "loopbackForwarder" {
		return "The listener chooses one of them for each connection."
	}
	how := map[string]string{
		"random":      "One of them is chosen at random for each connection.",
		"maglev":      "A lookup table has one of them for the client's address, the same on all nodes.",
		"maglev-port": "A lookup table has one of them for the client's address and port, the same on all nodes.",
	}[c.Algorithm]
	if c.Endpoint != "" {
		how += fmt.Sprintf(" With the backend nftables, it is %s.", c.Endpoint)
	}
	if c.AffinitySeconds == 0 {
		return how
	}
	return fmt.Sprintf("sessionAffinity is ClientIP: a client whose last connection was at most %v ago gets the same endpoint again, if it is still one of them. Otherwise: %s",
		time.Duration(c.AffinitySeconds)*time.Second, lowerFirst(how))
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// saySourceAddress describes the source address that the endpoints see.
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
	if text := map[string]string{
		"onNode":          fmt.Sprintf("The source address stays %s: the endpoint is in this node's own network.", client),
		"hairpin":         "The source address becomes this node's: the endpoint is the client itself, and its replies must come back through the node.",
		"everyClusterIP":  "The source address becomes this node's: with --masquerade-all, that applies to every cluster IP.",
		"offCluster":      fmt.Sprintf("The source address becomes this node's: %s is not recognized as a pod, and replies must come back through this node.", client),
		"externalCluster": "The source address becomes this node's: externalTrafficPolicy is Cluster, and replies must come back through this node.",
		"fromNode":        "The source address becomes this node's: a process of this node may use an address to which other machines cannot reply.",
		"byForwarder":     "The endpoint sees this node's address: the listener opens a connection of its own.",
	}[reason]; text != "" {
		return text
	}
	stays := fmt.Sprintf("The source address stays: the endpoint sees %s.", client)
	if !e.Client.canTellPods() && e.Client.Kind != "node" && e.Destination.Kind == "clusterIP" {
		stays += " If the client is not a pod, replies may not find their way back: this node cannot tell pods from other clients."
	}
	return stays
}

const fewAddresses = 3

// someOf lists addresses or, if they are many, returns their number.
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
	switch e.Verdict {
	case "forwarded":
		var list []string
		for _, u := range e.Endpoints.Used {
			if u.Pod != "" {
				u.Address += fmt.Sprintf(" (%s)", e.shortPod(u.Pod))
			}
			list = append(list, u.Address)
		}
		return "forwarded to " + someOf(list)
	case "rejected":
		return "refused: " + e.whyRefused()
	case "dropped":
		why := map[string]string{
			"noLocalEndpoints": "the policy is Local, and no endpoint on this node can answer",
			"sourceNotAllowed": e.Client.Address + " is not in loadBalancerSourceRanges",
			"unallocatedAddr":  e.Destination.Address + " is in a range of cluster IPs, and no Service served on this node has it",
		}[e.Reason]
		return fmt.Sprintf("dropped: %s (the client gets no answer, and times out)", why)
	}
	return fmt.Sprintf("not handled by Services: the connection continues to %v unchanged", e.Destination)
}

func (e *Explanation) whyRefused() string {
	how := `the client gets an ICMP error: "port unreachable"`
	switch {
	case e.Destination.Kind == "localhostNodePort":
		how = "the listener on loopback rejects it"
	case e.Destination.Protocol == "tcp":
		how = `the client gets a TCP reset: "connection refused"`
	}
	why := fmt.Sprintf("%s is a cluster IP, and its Service has no port %d/%s", e.Destination.Address, e.Destination.Port, e.Destination.Protocol)
	if e.Reason == "noEndpoints" {
		why = fmt.Sprintf("Service %v, %s, has no endpoint that can answer", *e.Destination.Service, e.Destination.Service.portText())
	}
	return fmt.Sprintf("%s (%s)", why, how)
}
