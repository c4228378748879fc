package others

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// isFilteredEarly reports whether something may drop a first packet before connection tracking has seen
// it, or there: a chain of somebody's, a table of iptables-legacy, or connection tracking that is
// nearly full.
func isFilteredEarly(f model.Family) (bool, error) {
	r, err := ReadRuleset()
	if err != nil {
		return false, err
	}
	defer r.Close()
	foreign := map[model.Family]string{model.IPv4: "ip6", model.IPv6: "ip"}[f]
	for _, b := range r.Bases {
		if (b.Hook == Prerouting || b.Hook == Output) && b.Priority <= atConntrack && b.Place.Family != foreign && b.Place.Family != "bridge" {
			return true, nil
		}
	}
	return slices.Contains(legacyTables(f), "raw") || isNearlyFull(), nil
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

// isNearlyFull reports whether connection tracking has nine tenths of the entries that it may have.
func isNearlyFull() bool {
	number := func(name string) int {
		b, _ := os.ReadFile("/proc/sys/net/netfilter/" + name)
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n
	}
	most := number("nf_conntrack_max")
	return most > 0 && number("nf_conntrack_count") > most*9/10
}

// Untraceable names what may drop packets although no rule of nftables does.
func Untraceable(f model.Family) []string {
	var list []string
	if tables := legacyTables(f); len(tables) > 0 {
		list = append(list, fmt.Sprintf("iptables-legacy has rules in the tables %s. The kernel cannot trace them; \"iptables-legacy -L -v -n\" counts packets.",
			strings.Join(tables, ", ")))
	}
	if b, err := os.ReadFile("/proc/thread-self/net/ip_vs"); err == nil && strings.Count(string(b), "\n") > 3 {
		list = append(list, "IPVS has virtual servers. The kernel cannot trace them; \"ipvsadm -Ln --stats\" counts packets.")
	}
	return append(list, "Programs of eBPF, such as those of Cilium or Calico, drop packets without a trace here.")
}
