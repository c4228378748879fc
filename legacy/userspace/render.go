package userspace

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Write writes the addresses and the listeners of a family as text: a line for each address that the
// device gets, and for each listener, with its endpoints.
func Write(w io.Writer, s *model.FamilySnapshot) error {
	b := bufio.NewWriter(w)
	for _, a := range slices.SortedFunc(maps.Keys(wantOf(s).addrs), netip.Addr.Compare) {
		fmt.Fprintf(b, "address %s dev %s\n", a, DeviceName)
	}
	for sp := range s.ServicePorts() {
		for _, at := range places(s, sp, Everything) {
			fmt.Fprintln(b, line(at))
		}
	}
	return b.Flush()
}

// line describes a listener, like
//
//	listen 172.30.0.41:80/tcp for ns1/web:http, cluster: 10.0.0.2:8080 10.0.0.3:8080, random
func line(at place) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen %v for %v", at.VIP, at.Port.Name)
	if at.Frontend.Restricted {
		fmt.Fprintf(&b, ", from %v only", at.Port.Allowed(*at.Frontend))
	}
	if at.Frontend.Action != model.Forward {
		fmt.Fprintf(&b, ", %v", at.Frontend.Action)
	}
	for _, p := range model.TrafficPolicies {
		if !at.Frontend.Uses(p) {
			continue
		}
		fmt.Fprintf(&b, ", %v:", p)
		if at.Frontend.ShortCircuit && p == model.Cluster {
			b.WriteString(" (from the node and its pods)")
		}
		for e := range at.Port.In(p) {
			fmt.Fprintf(&b, " %v", e.Addr)
		}
	}
	fmt.Fprintf(&b, ", %v", at.Port.Algorithm)
	if at.Port.Affinity > 0 {
		fmt.Fprintf(&b, ", affinity %v", at.Port.Affinity)
	}
	return b.String()
}
