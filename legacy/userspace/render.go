package userspace

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Write writes the addresses and the listeners of a family as text: a line for each address that the
// device gets, and for each listener, with its endpoints.
func Write(w io.Writer, s *model.FamilySnapshot) error {
	b := bufio.NewWriter(w)
	addrs := map[string]bool{}
	for a := range s.ClusterIPs() {
		addrs[a.String()] = true
	}
	var lines []string
	for sp := range s.ServicePorts() {
		for _, a := range serviceAddrs(s, sp) {
			addrs[a.String()] = true
		}
		for _, at := range Places(s, sp, Everything) {
			lines = append(lines, line(sp, at))
		}
	}
	for _, a := range slices.Sorted(maps.Keys(addrs)) {
		fmt.Fprintf(b, "address %s dev %s\n", a, DeviceName)
	}
	for _, l := range lines {
		fmt.Fprintln(b, l)
	}
	return b.Flush()
}

// line describes a listener, like
//
//	listen 172.30.0.41:80/tcp for ns1/web:http, cluster: 10.0.0.2:8080 10.0.0.3:8080, random
func line(sp *model.ServicePort, at Place) string {
	fe := frontendAt(sp, at)
	var b strings.Builder
	fmt.Fprintf(&b, "listen %v for %v", at.VIP, sp.Name)
	if fe.Restricted {
		fmt.Fprintf(&b, ", from %v only", sp.Allowed(*fe))
	}
	if fe.Action != model.Forward {
		fmt.Fprintf(&b, ", %v", fe.Action)
	}
	for _, p := range model.TrafficPolicies {
		if !fe.Uses(p) {
			continue
		}
		fmt.Fprintf(&b, ", %v:", p)
		if fe.ShortCircuit && p == model.Cluster {
			b.WriteString(" (from the node and its pods)")
		}
		for e := range sp.In(p) {
			fmt.Fprintf(&b, " %v", e.Addr)
		}
	}
	fmt.Fprintf(&b, ", %v", sp.Algorithm)
	if sp.Affinity > 0 {
		fmt.Fprintf(&b, ", affinity %v", sp.Affinity)
	}
	return b.String()
}
