package preflight

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// kubeletChains are those of the kubelet, which have kube-proxy's prefix. KUBE-FIREWALL, which both
// make, stays after a switch.
var kubeletChains = []string{"KUBE-KUBELET-CANARY", "KUBE-IPTABLES-HINT", "KUBE-FIREWALL"}

// isProxyChain reports whether a chain is kube-proxy's.
func isProxyChain(name string) bool {
	return strings.HasPrefix(name, "KUBE-") && !slices.Contains(kubeletChains, name)
}

// kubeMark is the packet mark of kube-proxy's that means "to be masqueraded", by default.
const kubeMark = "0x4000/0x4000"

var (
	ruleLine = regexp.MustCompile(`^(?:\[\d+:\d+\] )?-A (\S+) (.*)$`)
	jumpTo   = regexp.MustCompile(`(?:-j|-g) (KUBE-\S+)`)
)

// ReadIPTables reads the output of iptables-save or ip6tables-save, and returns nil without rules of
// kube-proxy.
func ReadIPTables(f model.Family, text string) (*Rules, error) {
	r := &Rules{Mode: "iptables", Destinations: map[model.VIP]string{}}
	var own, others strings.Builder
	found := false
	for line := range strings.Lines(text) {
		mine := r.isOwn(f, strings.TrimSpace(line))
		switch {
		case mine:
			found = true
			own.WriteString(line)
			continue
		case strings.HasPrefix(line, "*"), strings.HasPrefix(line, "COMMIT"):
			own.WriteString(line)
		case strings.HasPrefix(line, ":"): // built-in chains, with the policy of a node without a firewall
			if name, _, _ := strings.Cut(line[1:], " "); !strings.Contains(line, " - ") {
				own.WriteString(":" + name + " ACCEPT [0:0]\n")
			}
		}
		others.WriteString(line)
	}
	if !found || len(r.Destinations) == 0 {
		return nil, nil
	}
	var err error
	if r.own, r.Unread, err = iptsim.ReadSaved(f, own.String()); err != nil {
		return nil, err
	}
	if r.others, _, err = iptsim.ReadSaved(f, others.String()); err != nil {
		return nil, err
	}
	if r.all, _, err = iptsim.ReadSaved(f, text); err != nil {
		return nil, err
	}
	r.on = func(isLocal func(netip.Addr) bool) (simulator, error) {
		sim, err := iptsim.NewOn(iptsim.Node{IsLocal: isLocal}, r.own)
		return func(c model.Connection) (modeltest.Outcome, error) {
			o, err := sim.Run(c)
			return o.Outcome, err
		}, err
	}
	return r, nil
}

// isOwn reports whether a line is kube-proxy's, and notes what it says.
func (r *Rules) isOwn(f model.Family, line string) bool {
	if name, ok := strings.CutPrefix(line, ":"); ok {
		name, _, _ = strings.Cut(name, " ")
		return isProxyChain(name)
	}
	m := ruleLine.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	chain, rule := m[1], m[2]
	if isProxyChain(chain) {
		r.addDestination(f, chain, rule)
		return true
	}
	to := jumpTo.FindStringSubmatch(rule)
	jumps := to != nil && isProxyChain(to[1])
	builtin := chain == strings.ToUpper(chain) && slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain)
	if jumps && builtin && strings.Contains(rule, `--comment "kubernetes `) {
		return true
	}
	if jumps || strings.Contains(rule, kubeMark) {
		r.marked = append(r.marked, "-A "+chain+" "+rule)
	}
	return jumps // a jump to a chain that is removed disappears with it
}

var options = regexp.MustCompile(`(-d|-p|--dport|--comment) ("[^"]*"|\S+)`)

// addDestination notes the destination of a rule of the chains where all Services are listed.
func (r *Rules) addDestination(f model.Family, chain, rule string) {
	nodePort := chain == "KUBE-NODEPORTS" || chain == "KUBE-EXTERNAL-SERVICES" && strings.Contains(rule, "--dst-type LOCAL")
	if chain != "KUBE-SERVICES" && chain != "KUBE-EXTERNAL-SERVICES" && !nodePort {
		return
	}
	if strings.Contains(rule, "health check node port") {
		return
	}
	v := model.VIP{Addr: f.Unspecified()}
	name := ""
	for _, m := range options.FindAllStringSubmatch(rule, -1) {
		switch value := strings.Trim(m[2], `"`); m[1] {
		case "-d":
			if p, err := netip.ParsePrefix(value); err == nil && p.IsSingleIP() && !nodePort {
				v.Addr = p.Addr()
			}
		case "-p":
			v.Protocol, _ = model.ParseProtocol(strings.ToUpper(value))
		case "--dport":
			n, _ := strconv.ParseUint(value, 10, 16)
			v.Port = uint16(n)
		case "--comment":
			name, _, _ = strings.Cut(strings.Fields(value + " ")[0], ":")
		}
	}
	if v.Port == 0 || v.Addr.IsUnspecified() && !nodePort {
		return
	}
	r.Destinations[v] = name
}
