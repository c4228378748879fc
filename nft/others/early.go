package others

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// FiltersEarly reports whether a chain of somebody's is before connection tracking, and so may drop packets of a family,
// or keep them from being tracked.
func (r *Ruleset) FiltersEarly(f model.Family) bool {
	foreign := map[model.Family]string{model.IPv4: "ip6", model.IPv6: "ip"}[f]
	return slices.ContainsFunc(r.Bases, func(b Base) bool {
		isFirst := (b.Hook == Prerouting || b.Hook == Output) && b.Priority <= atConntrack
		return isFirst && b.Place.Family != foreign && b.Place.Family != "bridge"
	})
}

// Untraceable names what may drop packets although no rule of nftables does. tables are those of iptables-legacy.
func Untraceable(f model.Family, tables []string) (list []string) {
	if len(tables) > 0 {
		program := map[model.Family]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[f]
		list = append(list, fmt.Sprintf("%s has rules in the tables %s. The kernel cannot trace them; "+
			"\"%[1]s -L -v -n\" counts packets.", program, strings.Join(tables, ", ")))
	}
	if b, err := os.ReadFile("/proc/thread-self/net/ip_vs"); err == nil && strings.Count(string(b), "\n") > 3 {
		list = append(list, "IPVS has virtual servers. The kernel cannot trace them; \"ipvsadm -Ln --stats\" counts packets.")
	}
	return append(list, "Programs of eBPF, such as those of Cilium or Calico, drop packets without a trace here.")
}
