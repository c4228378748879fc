package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
)

// Backend names a dataplane.
type Backend string

// The backends.
const (
	Auto      Backend = "auto" // the first that works: nftables, IPVS, iptables, userspace
	NFTables  Backend = "nftables"
	IPVS      Backend = "ipvs"
	IPTables  Backend = "iptables"
	Userspace Backend = "userspace"
)

// modeOf returns the mode in which kube-proxy would run.
func modeOf(c *proxyconfig.KubeProxyConfiguration) Backend {
	if c.Mode == "" {
		return IPTables
	}
	return Backend(c.Mode)
}

// chooseBackend decides between vmapd's setting and kube-proxy's mode. An explicit mode is
// honoured, so that no node changes its dataplane unasked.
func (c *Config) chooseBackend() (b Backend, reason string) {
	mode := c.KubeProxy.Mode
	switch {
	case c.Own.Backend != Auto:
		reason := c.set("backend", string(c.Own.Backend))
		if mode != "" && Backend(mode) != c.Own.Backend {
			c.note(slog.LevelInfo, c.place("mode"), "%q does not choose the backend, because of %s", mode, reason)
		}
		return c.Own.Backend, reason
	case mode == "":
		c.noteDefaultMode()
		return Auto, "neither backend nor mode is set"
	case mode == proxyconfig.ProxyMode(NFTables):
	default:
		c.Notes = append(c.Notes, Note{Level: slog.LevelWarn, Event: true, Text: fmt.Sprintf(
			"%s: %q is honoured, although the nftables backend is faster; "+
				"to use that, set mode to \"\" or nftables, or use --backend=nftables", c.place("mode"), mode)})
	}
	return Backend(mode), c.set("mode", string(mode))
}

func (c *Config) noteDefaultMode() {
	if c.flags.ConfigFile == "" {
		return // nothing indicates that kube-proxy ran before
	}
	if len(c.KubeProxy.NodePortAddresses) == 0 {
		c.note(slog.LevelInfo, c.place("nodePortAddresses"),
			"empty: node ports answer on this node's primary addresses, as with mode nftables; with iptables, "+
				"kube-proxy answers on all addresses (nodePortAddresses: [all])")
	}
	c.note(slog.LevelInfo, c.place("mode"), "empty: nftables if the kernel supports it, else ipvs, else iptables; "+
		"kube-proxy uses iptables")
}

// masqueradeAll is set by the section of kube-proxy's mode, or by that of the backend. IPVS
// uses the section of iptables.
func (c *Config) masqueradeAll() bool {
	p, b := c.KubeProxy, c.Backend
	iptables := modeOf(p) != NFTables || b == IPTables || b == IPVS
	nftables := modeOf(p) == NFTables || b == NFTables || b == Auto
	return iptables && p.IPTables.MasqueradeAll || nftables && p.NFTables.MasqueradeAll
}

// nodePortAddresses returns where node ports answer. The defaults are those of an explicit
// mode, whatever the backend is.
func (c *Config) nodePortAddresses() model.NodePortAddresses {
	p := c.KubeProxy
	list := p.NodePortAddresses
	if legacy := p.Mode != "" && modeOf(p) != NFTables; len(list) == 0 && legacy {
		list = []string{"all"}
	}
	n, _ := ParseNodePortAddresses(list) // it is valid
	if p.Mode == proxyconfig.ProxyMode(IPTables) {
		if n.Localhost[model.IPv4] && !*p.IPTables.LocalhostNodePorts {
			c.note(slog.LevelWarn, c.place("iptables.localhostNodePorts"),
				"false: node ports do not answer on 127.0.0.1, although nodePortAddresses includes it")
		}
		n.Localhost[model.IPv4] = OnLoopback(n) && *p.IPTables.LocalhostNodePorts
	}
	place := c.place("nodePortAddresses")
	for _, p := range n.CIDRs {
		switch a := p.Addr(); {
		case a.Is6() && a.IsLinkLocalUnicast():
			c.note(slog.LevelWarn, place, "%v: node ports do not answer on IPv6 link-local addresses", p)
		case a.IsLoopback():
			c.note(slog.LevelWarn, place, "%v: of loopback, node ports answer on 127.0.0.1 and ::1 alone", p)
		}
	}
	for _, f := range model.Families {
		if n.Unlisted[f] && !n.All {
			c.note(slog.LevelWarn, place, "no range of %v: node ports of this family answer on all addresses", f)
		}
	}
	return n
}

// OnLoopback reports whether the addresses include 127.0.0.1. On loopback, kube-proxy's mode iptables serves IPv4 only.
func OnLoopback(n model.NodePortAddresses) bool {
	return n.All || n.Unlisted[model.IPv4] || n.Localhost[model.IPv4] ||
		slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Contains(model.IPv4.Loopback()) })
}

// ParseNodePortAddresses reads --nodeport-addresses: "primary", "all", "localhost" and CIDRs. An empty list means
// "primary". A range inside loopback that has its first address means "localhost" for its family.
func ParseNodePortAddresses(list []string) (model.NodePortAddresses, error) {
	n := model.NodePortAddresses{Primary: len(list) == 0}
	var listed [len(model.Families)]bool
	for _, s := range list {
		switch s {
		case "primary":
			n.Primary = true
		case "all":
			n.All = true
		case "localhost":
			n.Localhost = [len(model.Families)]bool{true, true}
			listed = n.Localhost
		default:
			p, err := model.ParsePrefix(s)
			if err != nil {
				return n, fmt.Errorf("%q is neither primary, all, localhost nor a CIDR", s)
			}
			f := model.FamilyOf(p.Addr())
			listed[f] = true
			if p.Addr().IsLoopback() && p.Contains(f.Loopback()) {
				n.Localhost[f] = true
			} else {
				n.CIDRs = append(n.CIDRs, p)
			}
		}
	}
	for _, f := range model.Families { // a list of nothing but ranges
		n.Unlisted[f] = !n.Primary && !listed[f] && slices.Contains(listed[:], true)
	}
	return n, nil
}
