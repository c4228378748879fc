package preflight

import (
	"net/netip"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/legacy/iptables/iptsim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Input is everything that is compared.
type Input struct {
	Objects explain.Objects
	// Config is vmapd's, Backend the one that it chooses: "nftables", "iptables" or "ipvs".
	Config  model.Config
	Backend string
	// HostAddresses are those of the node's interfaces other than loopback, the preferred one of
	// each family first. The Node's are known besides.
	HostAddresses []netip.Addr
	// Before are the rules of kube-proxy of each family; nil: none.
	Before [len(model.Families)]*Rules
	// Mode is kube-proxy's if it is known otherwise than by Before.
	Mode string
	// Settings are sentences for the report.
	Settings []string
}

// Rules are the rules of one family that kube-proxy has programmed.
type Rules struct {
	Mode string // "iptables" or "nftables"
	// Destinations are all addresses and ports that have rules. Node ports have the unspecified
	// address.
	Destinations map[model.VIP]string // the Service
	services     map[string]bool      // those of Destinations
	// Unread are kube-proxy's rules that were not understood.
	Unread []string

	on func(isLocal func(netip.Addr) bool) (simulator, error)
	// With mode iptables: kube-proxy's own rules, all rules, and those of others.
	own, all, others *iptsim.Tables
	// marked are rules of others that look for kube-proxy's mark or chains.
	marked []string
}

// simulator runs a connection through rules.
type simulator func(model.Connection) (modeltest.Outcome, error)

// builder returns the model of the node after the switch.
func (in *Input) builder() *model.Builder {
	b := in.Objects.Builder(in.Config)
	b.SetHostAddresses(in.HostAddresses)
	return b
}
