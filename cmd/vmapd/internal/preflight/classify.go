package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// order is the order of the findings in a report.
var order = []string{
	"node-port-address", "node-port-loopback", "external-in-service-cidr", "cluster-ip-first", "not-served",
	"served", "endpoints", "source", "forward-policy", "input-policy", "invalid-packets", "packet-mark",
	"refusal", "unused-port", "unallocated-address", "ping", "mark-unused", "session-affinity", "tables", "ipvs",
}

// lost adds a connection that an endpoint no longer answers.
func (x *comparison) lost(p probe, d model.Decision, was, will modeltest.Outcome) {
	fs := x.snapshot.Family(model.FamilyOf(p.Dest.Addr()))
	e := x.example(p, was, will)
	owner, isClusterIP := x.clusterIPOwner(p.Dest.Addr())
	inCIDR := slices.ContainsFunc(fs.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(p.Dest.Addr()) })
	external := p.kind == model.ExternalIP || p.kind == model.LoadBalancerIP
	switch {
	case p.kind == model.NodePort && p.Dest.Addr().IsLoopback():
		note(x.differences, Difference{
			ID:     "node-port-loopback",
			What:   fmt.Sprintf("node ports do not answer on %v", p.Dest.Addr()),
			Remedy: "add 127.0.0.0/8 or localhost (also ::1) to nodePortAddresses: TCP and UDP, by listeners of vmapd",
			Keep:   "nodePortAddresses: " + flow(withNodePorts(x.in.Config.NodePortAddresses, "127.0.0.0/8")),
		}, p, false, e)
	case p.kind == model.NodePort && !slices.Contains(fs.NodePortAddrs, p.Dest.Addr()):
		note(x.differences, Difference{
			ID:     "node-port-address",
			What:   "node ports answer on " + x.nodePortAnswers() + " only",
			Remedy: "nodePortAddresses: [all]; for kube-proxy before 1.37, [0.0.0.0/0, \"::/0\"] means the same",
			Keep:   "nodePortAddresses: " + flow(withNodePorts(x.in.Config.NodePortAddresses, "all")),
		}, p, true, e)
	case external && inCIDR && !x.in.Config.ExternalAddresses.InServiceCIDRs:
		note(x.differences, Difference{
			ID:     "external-in-service-cidr",
			What:   "external IPs and load balancers' addresses in a ServiceCIDR are not served",
			Remedy: "give the Services addresses outside of the ServiceCIDRs, or allow these",
			Keep:   "externalAddresses.allowServiceCIDRs: true",
		}, p, true, e)
	case external && isClusterIP && owner != p.service.NamespacedName:
		note(x.differences, Difference{
			ID:     "cluster-ip-first",
			What:   fmt.Sprintf("an %v that is the cluster IP of another Service (%v) is not served", p.kind, owner),
			Remedy: "give the Service another address; a cluster IP belongs to its own Service",
		}, p, true, e)
	default:
		note(x.differences, Difference{
			ID:     "not-served",
			What:   fmt.Sprintf("connections to the %v are %s%s", p.kind, verdict(will), x.because(p, d)),
			Remedy: "vmapd explain says more: " + x.explainCommand(p),
		}, p, true, e)
	}
}

// because returns the problem of a Service with its addresses, if it has one.
func (x *comparison) because(p probe, d model.Decision) string {
	for _, problem := range x.snapshot.Problems() {
		if problem.Object.Kind == "Service" && problem.Object.NamespacedName == p.service.NamespacedName {
			return ": " + problem.Error()
		}
	}
	if why, ok := reasons[d.Why]; ok {
		return ": " + why
	}
	return ""
}

var reasons = map[model.Reason]string{
	model.NoEndpoints:      "there is no endpoint that can answer",
	model.NoLocalEndpoints: "the traffic policy is Local, and no endpoint is on this node",
	model.SourceNotAllowed: "the client is not in loadBalancerSourceRanges",
	model.UnusedPort:       "the cluster IP does not have the port",
	model.UnallocatedAddr:  "the address is in a ServiceCIDR, and no Service has it",
}

// gained adds a connection that an endpoint answers only after the switch.
func (x *comparison) gained(p probe, was, will modeltest.Outcome) {
	d := Difference{
		ID:     "served",
		What:   fmt.Sprintf("connections to the %v are forwarded, which kube-proxy %s", p.kind, verdictBefore(x.result(p.Connection, was))),
		Remedy: "vmapd explain says more: " + x.explainCommand(p),
	}
	if p.kind == model.NodePort {
		d.What = "node ports also answer on addresses where kube-proxy's do not"
		d.Remedy = "set nodePortAddresses to kube-proxy's: [primary], or the ranges of these addresses"
	}
	note(x.differences, d, p, true, x.example(p, was, will))
}

// unserved adds a connection that no endpoint answers, before or after.
func (x *comparison) unserved(p probe, was, will modeltest.Outcome) {
	d := Difference{ID: "refusal", What: fmt.Sprintf("connections to the %v are %s; before, they were %s", p.kind, verdict(will), verdict(was))}
	if p.unused {
		d = Difference{ID: "unused-port", What: fmt.Sprintf("connections to a port that a cluster IP does not have are %s; before, they %s", verdict(will), left(was))}
	}
	note(x.notes, d, p, false, x.example(p, was, will))
}

// endpoints adds a connection that other endpoints answer.
func (x *comparison) endpoints(p probe, was, will modeltest.Outcome) {
	note(x.differences, Difference{
		ID:     "endpoints",
		What:   fmt.Sprintf("connections to the %v go to other endpoints", p.kind),
		Remedy: "compare trafficDistribution, topology hints and kube-proxy's feature gates; or kube-proxy has a sync pending: run preflight again",
	}, p, false, x.example(p, was, will))
}

// masquerade adds a connection that arrives from another address.
func (x *comparison) masquerade(p probe, was, will modeltest.Outcome) {
	keeps := true
	for _, a := range will.To {
		keeps = keeps && !a.Masquerade
	}
	change := "endpoints see the address of the node, and no longer the client's"
	if keeps {
		change = "endpoints see the client's address, and no longer the node's"
	}
	remedy := "clusterCIDR, detectLocalMode and masqueradeAll decide about it: set them as kube-proxy has them"
	if p.kind != model.ClusterIP {
		remedy = "clusterCIDR and detectLocalMode decide about it: set them as kube-proxy has them"
	}
	note(x.differences, Difference{ID: "source", What: fmt.Sprintf("at connections to the %v, %s", p.kind, change), Remedy: remedy}, p, false, x.example(p, was, will))
}

// unallocated tries an address of each ServiceCIDR that no Service has.
func (x *comparison) unallocated(f model.Family, c clients, simulate simulator) {
	if len(c.localPods) == 0 {
		return
	}
	for _, r := range x.snapshot.Family(f).ServiceCIDRs {
		a := r.Masked().Addr().Next()
		for x.isTaken(a) && r.Contains(a) {
			a = a.Next()
		}
		p := probe{client: LocalPod, service: &model.Service{}, kind: model.ClusterIP, Connection: model.Connection{
			Source: c.localPods[0], Interface: c.local, Dest: netip.AddrPortFrom(a, 80), Protocol: model.TCP,
		}}
		was, err := simulate(p.Connection)
		will := modeltest.Expected(model.Decide(x.snapshot, p.Connection))
		if err != nil || !r.Contains(a) || x.result(p.Connection, was) == x.result(p.Connection, will) {
			continue
		}
		d := Difference{ID: "unallocated-address", What: fmt.Sprintf("packets to an address in a ServiceCIDR that no Service has are %s; before, they %s", verdict(will), left(was))}
		d.Addresses = []string{r.String()}
		key := d.ID + d.What
		if have := x.notes[key]; have != nil {
			addTo(&have.Addresses, r.String())
			continue
		}
		d.Example = x.example(p, was, will)
		x.notes[key] = &d
	}
}

// isTaken reports whether a Service has an address.
func (x *comparison) isTaken(a netip.Addr) bool {
	if x.taken == nil {
		x.taken = map[netip.Addr]bool{}
		for v := range x.wanted {
			x.taken[v.Addr] = true
		}
	}
	return x.taken[a]
}

// clusterIPOwner returns the Service whose cluster IP an address is.
func (x *comparison) clusterIPOwner(a netip.Addr) (model.NamespacedName, bool) {
	if x.owners == nil {
		x.owners = map[netip.Addr]model.NamespacedName{}
		for _, s := range x.in.Objects.Services {
			for _, text := range s.ClusterIPs {
				if a, err := model.ParseAddr(text); err == nil {
					x.owners[a] = s.NamespacedName
				}
			}
		}
	}
	owner, ok := x.owners[a]
	return owner, ok
}

// example describes a connection and its results.
func (x *comparison) example(p probe, was, will modeltest.Outcome) *Example {
	from := p.Source.String()
	if p.Node {
		from = "node"
	}
	return &Example{
		From: from, To: fmt.Sprintf("%v/%v", p.Dest, p.Protocol),
		Before: x.describe(p.Connection, was), After: x.describe(p.Connection, will),
	}
}

func (x *comparison) describe(c model.Connection, o modeltest.Outcome) string {
	switch x.result(c, o) {
	case refused:
		return "refused"
	case discarded:
		return "dropped"
	case untouched:
		return "passed on untouched"
	case answered:
	}
	list := destinations(o)
	texts := make([]string, 0, len(list))
	masqueraded := true
	for _, to := range list {
		texts = append(texts, to.String())
		masqueraded = masqueraded && o.To[to].Masquerade
	}
	const most = 3
	if n := len(texts) - most; n > 0 {
		texts = append(texts[:most], fmt.Sprintf("%d others", n))
	}
	text := "forwarded to " + strings.Join(texts, " or ")
	if masqueraded {
		text += ", masqueraded"
	}
	return text
}

// explainCommand returns the arguments of "vmapd explain" for a connection.
func (x *comparison) explainCommand(p probe) string {
	from := p.Source.String()
	if p.Node {
		from = "node"
	}
	return fmt.Sprintf("--from %s %v/%v", from, p.Dest, p.Protocol)
}

func verdict(o modeltest.Outcome) string {
	switch o.Verdict {
	case model.Rejected:
		return "refused"
	case model.Dropped:
		return "dropped"
	case model.NotOurs, model.Forwarded:
	}
	return "passed on untouched"
}

func verdictBefore(r result) string {
	return [...]string{untouched: "passes on untouched", answered: "forwards", refused: "refuses", discarded: "drops"}[r]
}

func left(o modeltest.Outcome) string {
	if v := verdict(o); v != "passed on untouched" {
		return "were " + v
	}
	return "left the node or were lost"
}

// nodePortAnswers returns the addresses on which node ports answer after the switch.
func (x *comparison) nodePortAnswers() string {
	var list []string
	for _, f := range model.Families {
		for _, a := range x.snapshot.Family(f).NodePortAddrs {
			list = append(list, a.String())
		}
	}
	if len(list) == 0 {
		return "no address"
	}
	return strings.Join(list, " and ")
}

// withNodePorts returns a list for nodePortAddresses with one more word.
func withNodePorts(n model.NodePortAddresses, word string) []string {
	var list []string
	if n.All || word == "all" {
		list = append(list, "all")
	} else {
		if n.Primary {
			list = append(list, "primary")
		}
		for _, p := range n.CIDRs {
			list = append(list, p.String())
		}
	}
	if n.Localhost[model.IPv4] && word != "127.0.0.0/8" {
		list = append(list, "127.0.0.0/8")
	}
	if n.Localhost[model.IPv6] {
		list = append(list, "::1/128")
	}
	if word != "all" {
		list = append(list, word)
	}
	return list
}

// flow returns a list as YAML has it in one line.
func flow(list []string) string {
	quoted := make([]string, len(list))
	for i, w := range list {
		if quoted[i] = w; strings.HasPrefix(w, ":") {
			quoted[i] = `"` + w + `"`
		}
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
