package others

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// FiltersEarly reports whether something is before connection tracking that may drop packets of a family, or keep them
// from being tracked: a chain of somebody's, or a table of iptables-legacy.
func (r *Ruleset) FiltersEarly(f model.Family) bool {
	foreign := map[model.Family]string{model.IPv4: "ip6", model.IPv6: "ip"}[f]
	return slices.Contains(legacyTables(f), "raw") || slices.ContainsFunc(r.Bases, func(b Base) bool {
		isFirst := (b.Hook == Prerouting || b.Hook == Output) && b.Priority <= atConntrack
		return isFirst && b.Place.Family != foreign && b.Place.Family != "bridge"
	})
}

// legacyTables names the tables of iptables-legacy that this network namespace has.
func legacyTables(f model.Family) []string {
	name := map[model.Family]string{model.IPv4: "ip_tables_names", model.IPv6: "ip6_tables_names"}[f]
	b, err := os.ReadFile("/proc/thread-self/net/" + name)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// Untraceable names what may drop packets although no rule of nftables does.
func Untraceable(f model.Family) []string {
	var list []string
	if tables := legacyTables(f); len(tables) > 0 {
		program := map[model.Family]string{model.IPv4: "iptables-legacy", model.IPv6: "ip6tables-legacy"}[f]
		list = append(list, fmt.Sprintf("%s has rules in the tables %s. The kernel cannot trace them; "+
			"\"%[1]s -L -v -n\" counts packets.", program, strings.Join(tables, ", ")))
	}
	if b, err := os.ReadFile("/proc/thread-self/net/ip_vs"); err == nil && strings.Count(string(b), "\n") > 3 {
		list = append(list, "IPVS has virtual servers. The kernel cannot trace them; \"ipvsadm -Ln --stats\" counts packets.")
	}
	return append(list, "Programs of eBPF, such as those of Cilium or Calico, drop packets without a trace here.")
}
