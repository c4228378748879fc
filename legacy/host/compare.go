package host

import (
	"context"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// Compare returns the differences between the rules that a family has now and those of s, as text; with a service port,
// those alone that its connections meet. It changes nothing, and may be called during Apply: a change that Apply makes
// meanwhile may be among them.
func (b *IPTables) Compare(
	ctx context.Context, family model.Family, s *model.Snapshot, of *model.ServicePort,
) ([]string, error) {
	for _, f := range b.families {
		if f.family != family {
			continue
		}
		saved, err := f.save(ctx)
		if err != nil {
			return nil, err
		}
		list := iptables.Compile(nil, s.Family(family), b.optionsOf(f)).Repair(saved).Chains(of)
		for line := range strings.Lines(saved.HookText()) {
			if strings.HasPrefix(line, "-") {
				list = append(list, "a jump is missing or in another place: "+strings.TrimSpace(line))
			}
		}
		return list, nil
	}
	return nil, nil
}

// Compare returns the operations that would turn what the kernel has of a family now into s; with a service port,
// without those on other virtual servers. Else it is as [IPTables.Compare].
func (b *IPVS) Compare(
	ctx context.Context, family model.Family, s *model.Snapshot, of *model.ServicePort,
) (list []string, err error) {
	own := &IPVS{options: b.options}
	if own.servers, err = openServers(); err != nil { // Apply may use that of b meanwhile
		return nil, err
	}
	defer own.servers.Close()
	for _, f := range b.families {
		if f.family != family {
			continue
		}
		have, want, err := own.compile(ctx, f.programs, s.Family(family))
		if err != nil {
			return nil, err
		}
		for _, op := range ipvs.DiffContent(have, want) {
			owner, _ := want.Owner(op.Key)
			if of == nil || op.Key == (ipvs.Key{}) || owner == of.Name {
				list = append(list, op.Command)
			}
		}
	}
	return list, nil
}
