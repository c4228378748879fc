package host

import (
	"context"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// companionProbe is a text with what the companion needs beyond iptables.Probe. The sets
// must be there.
func companionProbe(f model.Family) string {
	const chain = iptables.IPVSPrefix + "PROBE"
	set := probePrefix + strings.TrimPrefix(ipvs.Inside.In(f), "VMAPD")
	return "*mangle\n:" + chain + " - [0:0]\n" +
		"-A " + chain + " -m ipvs --ipvs -m set --match-set " + set + " dst,dst -j SET --map-set " + set + " dst,dst --map-mark\n" +
		"COMMIT\n"
}

// setCompanion replaces our rules, and puts our jumps before the rules of others.
func (f *serverFamily) setCompanion(ctx context.Context, c *ipvs.Companion) error {
	saved, err := save(ctx, f.name)
	if err != nil {
		return err
	}
	_, err = restore(ctx, f.name, text(c.Over(saved)))
	return err
}
