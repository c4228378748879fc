package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// Compare returns the differences between the rules that a family has now and those of s, as text. It
// changes nothing, and may be called during Apply: a change that Apply makes meanwhile may be among them.
func (b *IPTables) Compare(ctx context.Context, family model.Family, s *model.Snapshot) ([]string, error) {
	for _, f := range b.families {
		if f.family != family {
			continue
		}
		saved, err := save(ctx, f.name)
		if err != nil {
			return nil, err
		}
		list := iptables.Compile(nil, s.Family(family), b.optionsOf(f)).Repair(saved).Chains()
		return append(list, missingJumps(saved.HookText())...), nil
	}
	return nil, nil
}

// missingJumps returns the rules of a text for iptables-restore, as differences.
func missingJumps(text string) (list []string) {
	for line := range strings.Lines(text) {
		if rule, ok := strings.CutPrefix(strings.TrimSpace(line), "-I "); ok {
			list = append(list, "a jump is missing or in another place: "+rule)
		}
	}
	return list
}

// Compare returns the operations that would turn what the kernel has of a family now into s. It changes
// nothing, and may be called during Apply: a change that Apply makes meanwhile may be among them.
func (b *IPVS) Compare(ctx context.Context, family model.Family, s *model.Snapshot) (list []string, err error) {
	f := b.family(family)
	if f == nil {
		return nil, nil
	}
	o := b.options
	o.RandomFully = f.tables.HasRandomFully()
	have, saved, err := b.readAlone(ctx, f, o)
	if err != nil {
		return nil, fmt.Errorf("read the node's state: %w", err)
	}
	want := ipvs.Compile(nil, s.Family(family), o)
	if want.Companion.IsIn(saved) {
		have.Companion = want.Companion
	}
	for _, op := range ipvs.DiffContent(have, want).Ops {
		if !drains(have, op) {
			list = append(list, op.String())
		}
	}
	return list, nil
}

// family returns the programs for a family, nil if there are none.
func (b *IPVS) family(family model.Family) *serverFamily {
	for _, f := range b.families {
		if f.family == family {
			return &serverFamily{programs: f.programs}
		}
	}
	return nil
}

// readAlone is read with sockets of its own, so that Apply may run meanwhile.
func (b *IPVS) readAlone(ctx context.Context, f *serverFamily, o ipvs.Options) (c *ipvs.Content, saved *iptables.Saved, err error) {
	own := &IPVS{log: b.log, options: b.options}
	if own.links, err = openLinks(); err != nil {
		return nil, nil, err
	}
	if own.servers, err = openServers(); err != nil {
		own.links.Close()
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	return own.read(ctx, f, o)
}

// drains reports whether an operation is for a real server that gets no new connections already.
func drains(have *ipvs.Content, op ipvs.Op) bool {
	var key ipvs.Key
	var addr netip.AddrPort
	switch op := op.(type) {
	case ipvs.DrainReal:
		key, addr = op.Key, op.Addr
	case ipvs.DeleteReal:
		key, addr = op.Key, op.Addr
	default:
		return false
	}
	weight, ok := have.Servers[key].Real[addr]
	return ok && weight == 0
}
