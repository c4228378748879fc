package explain

import "fmt"

// advise adds advice if the result is probably not the expected one.
func (e *Explanation) advise() {
	c := e.Client
	if c.Kind != "node" && c.PodNode != "" && c.PodNode != e.Node.Name {
		e.next("%s is on %s: that node decides about its connections (--node-name %s), not %s.", c.Address, c.PodNode, c.PodNode, e.Node.Name)
	}
	if c.OtherNode != "" {
		e.next("%s is the node %s: that node decides about its connections (--node-name %s), not %s.", c.Address, c.OtherNode, c.OtherNode, e.Node.Name)
	}
	if c.OtherwiseIfPod {
		e.next("If the client is a pod, the result differs: give the interface by which the connection arrives (--interface NAME).")
	}
	if e.Verdict == "forwarded" {
		e.adviseTargetPort()
	}
	switch e.Reason {
	case "noEndpoints":
		e.adviseNoEndpoints()
	case "noLocalEndpoints":
		e.adviseNoLocal()
	case "sourceNotAllowed":
		e.next("Is %s the client's own address, or that of a NAT or load balancer on the path? spec.loadBalancerSourceRanges must include the address that this node sees.", c.Address)
	}
	for _, f := range e.Destination.Findings {
		advice := findingAdvice[f.Kind]
		switch {
		case advice == "":
		case f.Kind == InServiceCIDR && len(e.Destination.Findings) > 1:
		case f.Kind == NodePortNotHere && e.Node.Known:
		default:
			e.Next = append(e.Next, e.fill(advice, f))
		}
	}
}

func (e *Explanation) next(format string, args ...any) {
	e.Next = append(e.Next, fmt.Sprintf(format, args...))
}

func (e *Explanation) adviseNoEndpoints() {
	sp := e.Destination.Service
	ns, name := sp.Namespace, sp.Name
	switch e.Endpoints.Lacking {
	case "notServing":
		e.next("Why is no pod ready? kubectl -n %s get pods -o wide, and kubectl -n %s describe pod NAME", ns, ns)
	case "noPort", "otherProtocol":
		if e.adviseTargetPort() {
			return
		}
		e.next("The name and protocol of a Service's port must match those in its slices: kubectl -n %s get endpointslices -l kubernetes.io/service-name=%s -o yaml", ns, name)
		e.next("A slice also lacks the port if its targetPort is a name that no container has: kubectl -n %s get service %s -o jsonpath='{.spec.ports}'", ns, name)
	case "invalid", "leftToOthers":
	case "otherFamily":
		e.next("Do the pods have %s addresses? kubectl -n %s get pods -o jsonpath='{.items[*].status.podIPs}'", sp.Family, ns)
	default:
		if e.adviseSelector() {
			return
		}
		e.next("Which pods does the Service select? kubectl -n %s get service %s -o jsonpath='{.spec.selector}', and kubectl -n %s get pods --show-labels", ns, name, ns)
	}
}

func (e *Explanation) adviseNoLocal() {
	if e.Policy.Field == "internalTrafficPolicy" {
		e.next("A DaemonSet would have a pod on each node; with internalTrafficPolicy: Cluster, or trafficDistribution: PreferSameNode, pods on other nodes answer.")
		return
	}
	e.next("A load balancer should not send connections to a node without endpoints: does it check healthCheckNodePort?")
	e.next("With externalTrafficPolicy: Cluster, pods on other nodes answer, and see this node's address as the source.")
}
