package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/nftsim"
)

// flow is one line of a scenario's flows:
//
//	ORIGIN ADDRESS:PORT/PROTOCOL => OUTCOME
//
// The origin is client (a machine outside), node, or pod-1 to pod-3 (all on our node).
// The outcome is one of
//
//	ENDPOINT...     each with the same share; "masquerade" behind one means that it and
//	                those before it see the node's address as the source
//	reject          the client is told at once
//	drop            the client hears nothing
//	elsewhere       not ours: the packet goes on as it is
type flow struct {
	text      string
	line      int
	from      origin
	dest      netip.AddrPort
	protocol  model.Protocol
	want      string // reject, drop, elsewhere, or empty
	endpoints []flowEndpoint
}

type flowEndpoint struct {
	addr       netip.AddrPort
	masquerade bool
}

// origin is who connects.
type origin struct {
	name string
	kind nftsim.Origin
	pod  int // from 1; 0 for what is no pod
}

// addr returns the origin's address.
func (o origin) addr(f model.Family) netip.Addr {
	addrs := map[nftsim.Origin][len(model.Families)]string{
		nftsim.Outside: {lab.ClientIP4, lab.ClientIP6},
		nftsim.Node:    {lab.NodeIP4, lab.NodeIP6},
		nftsim.Pod:     {lab.FirstPodIP4, lab.FirstPodIP6},
	}
	a := netip.MustParseAddr(addrs[o.kind][f])
	for range o.pod - 1 {
		a = a.Next()
	}
	return a
}

const podCount = 3

func parseOrigin(s string) (origin, error) {
	switch s {
	case "client":
		return origin{name: s, kind: nftsim.Outside}, nil
	case "node":
		return origin{name: s, kind: nftsim.Node}, nil
	}
	number, ok := strings.CutPrefix(s, "pod-")
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 1 && n <= podCount {
		return origin{name: s, kind: nftsim.Pod, pod: n}, nil
	}
	return origin{}, fmt.Errorf("unknown origin %q", s)
}

// flows returns the scenario's flows.
func (s *scenario) flows(t *testing.T) []flow {
	t.Helper()
	var list []flow
	number := 0
	for line := range strings.Lines(s.file("flows")) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f, err := parseFlow(line)
		if err != nil {
			t.Fatalf("%s: flows, line %d: %v", s.path, number, err)
		}
		f.line = number
		list = append(list, f)
	}
	return list
}

func parseFlow(line string) (flow, error) {
	f := flow{text: strings.Join(strings.Fields(line), " ")}
	connection, outcome, ok := strings.Cut(f.text, " =>")
	if !ok {
		return f, errors.New("no =>")
	}
	from, dest, _ := strings.Cut(connection, " ")
	var err error
	if f.from, err = parseOrigin(from); err != nil {
		return f, err
	}
	addr, protocol, _ := strings.Cut(dest, "/")
	if f.dest, err = netip.ParseAddrPort(addr); err != nil {
		return f, fmt.Errorf("bad destination %q", dest)
	}
	if f.protocol, err = model.ParseProtocol(strings.ToUpper(protocol)); err != nil || protocol == "" {
		return f, fmt.Errorf("bad destination %q", dest)
	}
	words := strings.Fields(outcome)
	if len(words) == 1 && slices.Contains([]string{"reject", "drop", "elsewhere"}, words[0]) {
		f.want = words[0]
		return f, nil
	}
	return f, f.parseEndpoints(words)
}

func (f *flow) parseEndpoints(words []string) error {
	if len(words) == 0 {
		return errors.New("no outcome")
	}
	for _, w := range words {
		if w == "masquerade" {
			if len(f.endpoints) == 0 {
				return errors.New("masquerade before any endpoint")
			}
			for i := range f.endpoints {
				f.endpoints[i].masquerade = true
			}
			continue
		}
		a, err := netip.ParseAddrPort(w)
		switch {
		case err != nil:
			return fmt.Errorf("bad endpoint %q", w)
		case a.Addr().Is4() != f.dest.Addr().Is4():
			return fmt.Errorf("endpoint %q is of another family", w)
		case slices.ContainsFunc(f.endpoints, func(e flowEndpoint) bool { return e.addr == a }):
			return fmt.Errorf("endpoint %q is there twice", w)
		}
		f.endpoints = append(f.endpoints, flowEndpoint{addr: a})
	}
	return nil
}
