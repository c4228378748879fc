package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// Input is a connection, with the objects and the configuration that decide about it.
type Input struct {
	names.Answer
	Objects *names.Directory // all, also those that the proxy ignores
	Config  model.Config
	Builder *model.Builder // of the objects
	// Snapshot decides; nil: the Builder's.
	Snapshot *model.Snapshot
	// ByListeners: a listener of vmapd's serves every Service, and makes connections of its own.
	ByListeners bool
}

// NewInput finds the ends of a connection, and checks the node.
func NewInput(d *names.Directory, c model.Config, q names.Query) (in Input, err error) {
	answer, err := d.Resolve(q)
	if err != nil {
		return in, errors.New(model.OneLine(err.Error())) // nothing has checked names in manifests
	}
	c.NodeName = answer.NodeName
	if err := d.CheckNode(c.NodeName); err != nil && c.NodeName != "" {
		return in, err
	}
	in = Input{Answer: answer, Objects: d, Config: c, Builder: d.Builder(c)}
	if in.Interface = q.Interface; in.Node && !in.Source.IsValid() {
		in.Source, err = in.nodeAddress()
	}
	return in, err
}

// nodeAddress returns the source of a connection that this node makes: a loopback address if the destination is one,
// and otherwise the node's primary address.
func (in *Input) nodeAddress() (netip.Addr, error) {
	family := model.FamilyOf(in.Dest.Addr())
	if in.Dest.Addr().IsLoopback() {
		return family.Loopback(), nil
	}
	if n, _ := in.Objects.Node(in.Config.NodeName); n != nil {
		for _, a := range names.Addrs(n.Addresses) {
			if model.FamilyOf(a) == family {
				return a, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("--from: the %v address of the node %q is not known", family, in.Config.NodeName)
}

// Decide returns what the model decides.
func (in *Input) Decide() model.Decision {
	s, c := cmp.Or(in.Snapshot, in.Builder.Snapshot()), in.Connection
	own := s.Family(model.FamilyOf(c.Dest.Addr())).NodeAddrs
	if c.Node = c.Node || c.Source.IsLoopback() || slices.Contains(own, c.Source); c.Node {
		c.Interface = ""
	}
	return model.Decide(s, c)
}

// ExitUnexpected is the exit code of an explanation that is not the expected one.
const ExitUnexpected = 2

// Expectation is the expected result of a connection. The zero value expects nothing.
type Expectation struct {
	outcome  report.Outcome
	endpoint string
}

// ParseExpectation reads VERDICT[=ENDPOINT]; "" expects nothing.
func ParseExpectation(s string) (w Expectation, err error) {
	if s == "" {
		return w, nil
	}
	text, endpoint, found := strings.Cut(s, "=")
	w = Expectation{report.Outcome(text), endpoint}
	if text == "not-a-service" {
		w.outcome = report.NotService
	}
	outcomes := []report.Outcome{report.Forwarded, report.Rejected, report.Dropped, report.NotService}
	switch {
	case !slices.Contains(outcomes, w.outcome):
		return w, fmt.Errorf("unknown result %q (forwarded, rejected, dropped, not-a-service)", text)
	case found && (w.outcome != report.Forwarded || endpoint == ""):
		return w, fmt.Errorf("want an endpoint after forwarded=; got %q", s)
	}
	return w, nil
}

// Differs returns how a connection differs from the expectation, or "".
func (w Expectation) Differs(outcome report.Outcome, conclusion string, endpoints []Endpoint) string {
	is := func(u Endpoint) bool {
		addr, _ := netip.ParseAddrPort(u.Address)
		pod := strings.TrimPrefix(w.endpoint, "pod/")
		return w.endpoint == u.Address || w.endpoint == addr.Addr().String() ||
			u.Pod != "" && (pod == u.Pod || strings.HasSuffix(u.Pod, "/"+pod))
	}
	switch {
	case w.outcome == "":
	case w.outcome != outcome:
		return fmt.Sprintf("expected %s, got: %s", w.outcome, conclusion)
	case w.endpoint != "" && !slices.ContainsFunc(endpoints, is):
		return fmt.Sprintf("expected the endpoint %s, got: %s", w.endpoint, conclusion)
	}
	return ""
}
