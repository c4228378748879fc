package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
)

// flow is one line of a scenario's flows. The README.md of testdata/scenario describes the
// syntax.
type flow struct {
	text      string
	line      int
	from      origin
	dest      netip.AddrPort
	protocol  model.Protocol
	want      string // reject, drop, elsewhere, or empty
	endpoints []flowEndpoint
	tries     string         // sticky, same, or empty
	decided   model.Decision // with nftables
}

type flowEndpoint struct {
	addr       netip.AddrPort
	masquerade bool
}

// origin is the client of a flow.
type origin struct {
	name   string
	kind   originKind
	number int // of the pod, or of the client's address; from 1
}

type originKind uint8

const (
	fromOutside originKind = iota
	fromNode
	fromPod
)

// addrs are the origins' addresses; of pods, the first one's.
var addrs = map[originKind][len(model.Families)]string{
	fromOutside: {lab.ClientIP4, lab.ClientIP6},
	fromNode:    {lab.NodeIP4, lab.NodeIP6},
	fromPod:     {lab.FirstPodIP4, lab.FirstPodIP6},
}

// addr returns the origin's address.
func (o origin) addr(f model.Family) netip.Addr {
	a := netip.MustParseAddr(addrs[o.kind][f])
	if o.kind == fromOutside && o.number == 2 {
		return netip.MustParseAddr([...]string{lab.SecondClientIP4, lab.SecondClientIP6}[f])
	}
	for i := 1; o.kind == fromPod && i < o.number; i++ {
		a = a.Next()
	}
	return a
}

// iface returns the node's interface by which the origin's packets come in.
func (o origin) iface() string {
	switch o.kind {
	case fromOutside:
		return lab.UplinkName
	case fromPod:
		return lab.PodLinkPrefix + strconv.Itoa(o.number)
	case fromNode:
	}
	return ""
}

// source returns the address that the flow comes from. To an address of its own, a
// machine connects from that very address.
func (f flow) source(nodeAddrs []netip.Addr) netip.Addr {
	a := f.dest.Addr()
	if f.from.kind == fromNode && (a.IsLoopback() || slices.Contains(nodeAddrs, a)) {
		return a
	}
	return f.from.addr(f.family())
}

func (f flow) family() model.Family { return model.FamilyOf(f.dest.Addr()) }

const podCount = 3

func parseOrigin(s string) (origin, error) {
	switch s {
	case "client":
		return origin{s, fromOutside, 1}, nil
	case "client-2":
		return origin{s, fromOutside, 2}, nil
	case "node":
		return origin{s, fromNode, 1}, nil
	}
	number, ok := strings.CutPrefix(s, "pod-")
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 1 && n <= podCount {
		return origin{s, fromPod, n}, nil
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
		if err == nil {
			err = f.follows(list)
		}
		if err != nil {
			t.Fatalf("%s: flows, line %d: %v", s.path, number, err)
		}
		f.line = number
		list = append(list, f)
	}
	return list
}

// follows checks a flow against those above.
func (f flow) follows(above []flow) error {
	if slices.ContainsFunc(above, func(o flow) bool {
		return o.from == f.from && o.dest == f.dest &&
			o.protocol == f.protocol
	}) {
		return errors.New("this connection is there twice")
	}
	if f.tries != same {
		return nil
	}
	if len(above) == 0 || above[len(above)-1].tries != sticky && above[len(above)-1].tries != same {
		return errors.New("same, but there is no sticky flow just above")
	}
	if last := above[len(above)-1]; last.from != f.from || last.family() != f.family() {
		return errors.New("same, but the flow above is another client's")
	}
	return nil
}

// The relations of the tries of one client.
const (
	sticky = "sticky"
	same   = "same"
)

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
	if f.dest.Addr().IsLoopback() && f.from.kind != fromNode {
		return f, errors.New("what goes to loopback never reaches the node")
	}
	words := strings.Fields(outcome)
	if len(words) == 1 && slices.Contains([]string{"reject", "drop", "elsewhere"}, words[0]) {
		f.want = words[0]
		return f, nil
	}
	return f, f.parseEndpoints(words)
}

func (f *flow) parseEndpoints(words []string) error {
	if n := len(words); n > 0 && slices.Contains([]string{sticky, same}, words[n-1]) {
		f.tries = words[n-1]
		words = words[:n-1]
	}
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
	// One endpoint of one is always the same.
	if f.tries != "" && len(f.endpoints) == 1 {
		return fmt.Errorf("%s needs two endpoints", f.tries)
	}
	return nil
}
