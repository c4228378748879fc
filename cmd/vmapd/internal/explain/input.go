package explain

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
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
	// Now is for the age of ejections; zero: they have none.
	Now time.Time
	// ByListeners: a listener of vmapd's serves every Service, and makes connections of its own.
	ByListeners bool
}

// NewInput finds the ends of a connection, which arrives by an interface, or by an unknown one, and checks the node.
func NewInput(d *names.Directory, c model.Config, q names.Query, arrivesBy string) (in Input, err error) {
	answer, err := d.Resolve(q)
	if err != nil {
		return in, errors.New(model.OneLine(err.Error())) // nothing has checked names in manifests
	}
	if c.NodeName = answer.NodeName; c.NodeName != "" && len(d.Nodes) > 0 {
		if _, err := d.Node(c.NodeName); err != nil {
			return in, fmt.Errorf("--node-name: %w", err)
		}
	}
	in = Input{Answer: answer, Objects: d, Config: c, Builder: d.Builder(c)}
	if in.Interface = arrivesBy; in.Node && !in.Source.IsValid() {
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
