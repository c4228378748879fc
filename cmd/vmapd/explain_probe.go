package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/probe"
	"github.com/vmapd/vmapd/model"
)

const (
	probeTime      = 2 * time.Second // for each connection; they are made at the same time
	probeEndpoints = 10              // at most
)

// probeConnections connects as an explanation says, and adds the answers: from the network of the client
// if that is a pod whose network is visible here, and otherwise from that of this process.
func probeConnections(e *explain.Explanation) {
	p := probe.Prober{Timeout: probeTime}
	out := explain.Probe{From: "from this machine's own network"}
	if e.Client.Kind != "node" {
		out.From += ", not from " + e.Client.Address
	}
	client, err := netip.ParseAddr(e.Client.Address)
	if err == nil && (e.Client.Kind == "pod" || strings.HasPrefix(e.Client.Name, "pod ")) && e.Client.Kind != "node" {
		f, err := probe.Find(client)
		if err == nil {
			defer func() { _ = f.Close() }()
			p.NetNS, out.From = f, "from the network of "+e.Client.Name
			if e.Client.Name == "" {
				out.From = "from the network of " + e.Client.Address
			}
		} else {
			out.From += fmt.Sprintf(" (%v)", err)
		}
	}
	protocol, _ := model.ParseProtocol(strings.ToUpper(e.Destination.Protocol)) // an explanation's is valid
	addr, _ := netip.ParseAddr(e.Destination.Address)
	to := []netip.AddrPort{netip.AddrPortFrom(addr, e.Destination.Port)}
	if e.Endpoints != nil {
		for i, u := range e.Endpoints.Used {
			if i == probeEndpoints {
				out.NotProbed = len(e.Endpoints.Used) - i
				break
			}
			if a, err := netip.ParseAddrPort(u.Address); err == nil {
				to = append(to, a)
			}
		}
	}
	answers := p.All(protocol, to)
	out.Destination, out.Endpoints = answers[0], answers[1:]
	e.AddProbe(out)
}
