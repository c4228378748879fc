package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

const defaultDomain = "cluster.local"

// Candidates returns the namespaces and names of Services or pods that a reference may mean: a
// name in DNS may mean several. A Namespace of "" stands for any.
func (r Ref) Candidates(namespace, domain string) []model.NamespacedName {
	if r.Kind != Host {
		return []model.NamespacedName{{Namespace: cmp.Or(r.Namespace, namespace), Name: r.Name}}
	}
	name, ns, _ := r.split(domain)
	return []model.NamespacedName{{Namespace: cmp.Or(ns, namespace), Name: name}}
}

// split takes NAME[.NAMESPACE[.svc[.DOMAIN]]] apart. A headless Service's pods have one more label
// in front, which is returned as pod.
func (r Ref) split(domain string) (name, namespace, pod string) {
	domain = cmp.Or(domain, defaultDomain)
	text := strings.TrimSuffix(strings.ToLower(r.Name), "."+domain)
	text, full := strings.CutSuffix(text, ".svc")
	parts := strings.Split(text, ".")
	switch {
	case len(parts) == 1:
		return parts[0], "", ""
	case len(parts) == 2:
		return parts[0], parts[1], ""
	case len(parts) == 3 && full:
		return parts[1], parts[2], parts[0]
	}
	return r.Name, "", ""
}

// host finds the Service of a name in DNS, or one pod of a headless Service.
func (r *resolver) host(ref Ref) (end, port, error) {
	name, namespace, pod := ref.split(r.ClusterDomain)
	if name == ref.Name && strings.Contains(name, ".") {
		return end{}, port{}, fmt.Errorf("%q is not the name of a Service: want NAME[.NAMESPACE[.svc[.%s]]] (--cluster-domain)",
			ref.Name, cmp.Or(r.ClusterDomain, defaultDomain))
	}
	of := Ref{Kind: Service, Name: name, Namespace: namespace, Port: ref.Port, Protocol: ref.Protocol, text: ref.text}
	if pod == "" {
		return r.service(of)
	}
	return r.hostOf(of, pod)
}

// hostOf finds a pod of a headless Service by its name in DNS.
func (r *resolver) hostOf(ref Ref, host string) (end, port, error) {
	s, err := r.find(Service, ref, r.serviceNames())
	if err != nil {
		return end{}, port{}, err
	}
	object, _ := r.Directory.Service(s)
	at, err := object.port(ref)
	if err != nil {
		return end{}, at, err
	}
	var hosts []string
	for _, slice := range r.Slices {
		if slice.Namespace != s.Namespace || slice.Labels[model.LabelServiceName] != s.Name {
			continue
		}
		for i := range slice.Endpoints {
			if slice.Hosts[i] == host && slice.Pods[i] != "" {
				return r.podOfSlices(model.NamespacedName{Namespace: s.Namespace, Name: slice.Pods[i]}), at, nil
			}
			if slice.Hosts[i] != "" {
				hosts = append(hosts, slice.Hosts[i])
			}
		}
	}
	return end{}, at, fmt.Errorf("Service %v has no endpoint with the host name %s%s", s, host, instead(host, hosts))
}

func (r *resolver) serviceNames() []model.NamespacedName {
	var out []model.NamespacedName
	for _, s := range r.Services {
		out = append(out, s.NamespacedName)
	}
	return out
}

// service finds an address of a Service.
func (r *resolver) service(ref Ref) (end, port, error) {
	name, err := r.find(Service, ref, r.serviceNames())
	if err != nil {
		return end{}, port{}, err
	}
	s, _ := r.Directory.Service(name)
	at, err := s.port(ref)
	if err != nil {
		return end{}, at, err
	}
	e := end{what: "Service " + name.String()}
	switch r.Via {
	case "", ViaClusterIP:
		e.addrs = addrsOf(s.ClusterIPs)
		if len(e.addrs) == 0 {
			err = s.withoutClusterIP()
		}
	case ViaLoadBalancer:
		for _, in := range s.Ingress {
			e.addrs = append(e.addrs, addrsOf([]string{in.IP})...)
		}
		if len(e.addrs) == 0 {
			err = fmt.Errorf("Service %v has no load-balancer address (type %s; status.loadBalancer.ingress has no ip)", name, cmp.Or(s.Type, "ClusterIP"))
		}
	case ViaExternalIP:
		if e.addrs = addrsOf(s.ExternalIPs); len(e.addrs) == 0 {
			err = fmt.Errorf("Service %v has no external IP (spec.externalIPs)", name)
		}
	case ViaNodePort:
		e.addrs, at, err = r.nodePort(s, at)
	}
	if n := len(e.addrs); r.Via != "" && r.Via != ViaNodePort && n > 1 && !slices.ContainsFunc(e.addrs[1:], func(a netip.Addr) bool { return a.Is4() != e.addrs[0].Is4() }) {
		e.notes = append(e.notes, fmt.Sprintf("%v is taken, one of %d such addresses of Service %v", e.addrs[0], n, name))
	}
	return e, at, err
}

// nodePort returns the addresses of the node that decides, and the node port.
func (r *resolver) nodePort(s ServiceObject, at port) ([]netip.Addr, port, error) {
	n, err := r.node(r.NodeName)
	if err != nil {
		return nil, at, err
	}
	for _, p := range s.Ports {
		if uint16(p.Port) == at.number && protocolOf(p) == at.protocol && p.NodePort != 0 {
			return addrsOf(n.Addresses), port{uint16(p.NodePort), at.protocol}, nil
		}
	}
	return nil, at, fmt.Errorf("Service %v has no node port for %d/%v (type %s)", s.NamespacedName, at.number, at.protocol, cmp.Or(s.Type, "ClusterIP"))
}

func (s ServiceObject) withoutClusterIP() error {
	if s.Type == "ExternalName" {
		return fmt.Errorf("Service %v is of type ExternalName: it is only a name in DNS, and no proxy serves it", s.NamespacedName)
	}
	return fmt.Errorf("Service %v has no cluster IP (headless): DNS returns the pods' own addresses, and no proxy serves it; name a pod, as in pod/NAME:PORT", s.NamespacedName)
}

func protocolOf(p model.Port) model.Protocol {
	out, _ := model.ParseProtocol(p.Protocol) // an invalid one is TCP here; the builder reports it
	return out
}

// port finds the number of a port that is given by name, by number, or not at all.
func (s ServiceObject) port(ref Ref) (port, error) {
	given := func(p model.Port) bool {
		return (ref.Port == "" || p.Name == ref.Port || strconv.Itoa(int(p.Port)) == ref.Port) &&
			(ref.Protocol == "" || protocolOf(p).String() == ref.Protocol)
	}
	var found []model.Port
	var all []string
	for _, p := range s.Ports {
		if given(p) {
			found = append(found, p)
		}
		all = append(all, portText(p))
	}
	protocol, _ := model.ParseProtocol(strings.ToUpper(ref.Protocol)) // ParseDestination has checked it
	switch {
	case len(found) == 0 && ref.number() != 0:
		return port{ref.number(), protocol}, nil // the explanation says which ports there are
	case len(found) == 0 && len(all) == 0:
		return port{}, fmt.Errorf("Service %v has no ports", s.NamespacedName)
	case len(found) == 0:
		return port{}, fmt.Errorf("Service %v has no port named %q; its ports are %s", s.NamespacedName, ref.Port, strings.Join(all, ", "))
	case len(found) > 1 && ref.number() != 0:
		return port{ref.number(), protocol}, nil // TCP, if it has both
	case len(found) > 1:
		return port{}, fmt.Errorf("which port of Service %v? its ports are %s; give one, as in svc/%s:%d", s.NamespacedName, strings.Join(all, ", "), s.Name, found[0].Port)
	}
	return port{uint16(found[0].Port), protocolOf(found[0])}, nil
}

func portText(p model.Port) string {
	text := fmt.Sprintf("%d/%v", p.Port, protocolOf(p))
	if p.Name != "" {
		return fmt.Sprintf("%q (%s)", p.Name, text)
	}
	return text
}
