package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// validate checks a configuration that has its defaults, but not the section ipvs: see [validateIPVS].
func validate(c *proxyconfig.KubeProxyConfiguration, running Backend) field.ErrorList {
	var errs field.ErrorList
	add := func(more field.ErrorList) { errs = append(errs, more...) }
	path := field.NewPath

	add(oneOf(path("mode"), c.Mode, "", proxyconfig.ProxyMode(IPTables), proxyconfig.ProxyMode(IPVS),
		proxyconfig.ProxyMode(NFTables)))
	add(between(path("iptables", "masqueradeBit"), *c.IPTables.MasqueradeBit, 0, 31))
	add(between(path("nftables", "masqueradeBit"), *c.NFTables.MasqueradeBit, 0, 31))
	add(between(path("oomScoreAdj"), *c.OOMScoreAdj, -1000, 1000))
	add(notNegative(path("clientConnection", "burst"), c.ClientConnection.Burst))
	if period := c.ConfigSyncPeriod.Duration; period <= 0 {
		add(invalid(path("configSyncPeriod"), period, "not more than 0"))
	}
	if _, ok := parseIP(c.BindAddress); !ok {
		add(invalid(path("bindAddress"), c.BindAddress, "not an IP address"))
	}
	add(validateHostPort(path("healthzBindAddress"), c.HealthzBindAddress))
	add(validateHostPort(path("metricsBindAddress"), c.MetricsBindAddress))
	add(validatePeriods(c, running))
	add(validateConntrack(path("conntrack"), &c.Conntrack))
	add(validateLocalMode(c))
	add(validateClusterCIDR(path("clusterCIDR"), c.ClusterCIDR))
	for i, s := range c.NodePortAddresses {
		if _, err := ParseNodePortAddresses([]string{s}); err != nil {
			add(invalid(path("nodePortAddresses").Index(i), s, "neither primary, all, localhost nor a CIDR"))
		}
	}
	add(validateLogging(path("logging"), &c.Logging))
	return errs
}

// validatePeriods checks the periods of kube-proxy's mode and of the running backend.
func validatePeriods(c *proxyconfig.KubeProxyConfiguration, running Backend) field.ErrorList {
	var errs field.ErrorList
	for _, b := range slices.Compact([]Backend{modeOf(c), running}) {
		sync, pause := section(c, b)
		errs = append(errs, notNegative(field.NewPath(sync.field), sync.value)...)
		errs = append(errs, notNegative(field.NewPath(pause.field), pause.value)...)
	}
	if sync, pause := periods(c, running); len(errs) == 0 && pause.value > sync.value {
		errs = append(errs, invalid(field.NewPath(pause.field), pause.value,
			fmt.Sprintf("more than %s (%v)", sync.field, sync.value))...)
	}
	return errs
}

// validateIPVS checks the section ipvs.
func validateIPVS(c *proxyconfig.KubeProxyConfiguration) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("ipvs")
	sync, pause := section(c, IPVS)
	errs = append(errs, notNegative(path.Child("syncPeriod"), sync.value)...)
	errs = append(errs, notNegative(path.Child("minSyncPeriod"), pause.value)...)
	if s := c.IPVS.Scheduler; s != "" && !slices.Contains(ipvs.Schedulers, s) {
		errs = append(errs, field.NotSupported(path.Child("scheduler"), s, ipvs.Schedulers))
	}
	errs = append(errs, validateExcludeCIDRs(c.IPVS.ExcludeCIDRs)...)
	for name, timeout := range map[string]time.Duration{
		"tcpTimeout": c.IPVS.TCPTimeout.Duration, "tcpFinTimeout": c.IPVS.TCPFinTimeout.Duration,
		"udpTimeout": c.IPVS.UDPTimeout.Duration,
	} {
		errs = append(errs, notNegative(path.Child(name), timeout)...)
		if timeout%time.Second != 0 {
			errs = append(errs, invalid(path.Child(name), timeout, "not a number of whole seconds")...)
		}
	}
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
	return errs
}

func validateExcludeCIDRs(list []string) field.ErrorList {
	var errs field.ErrorList
	for i, s := range list {
		if _, err := parseCIDR(s); err != nil {
			errs = append(errs, invalid(field.NewPath("ipvs", "excludeCIDRs").Index(i), s, "not a CIDR")...)
		}
	}
	return errs
}

func validateConntrack(path *field.Path, c *proxyconfig.KubeProxyConntrackConfiguration) field.ErrorList {
	return slices.Concat(
		notNegative(path.Child("maxPerCore"), *c.MaxPerCore),
		notNegative(path.Child("min"), *c.Min),
		notNegative(path.Child("tcpEstablishedTimeout"), c.TCPEstablishedTimeout.Duration),
		notNegative(path.Child("tcpCloseWaitTimeout"), c.TCPCloseWaitTimeout.Duration),
		notNegative(path.Child("udpTimeout"), c.UDPTimeout.Duration),
		notNegative(path.Child("udpStreamTimeout"), c.UDPStreamTimeout.Duration),
	)
}

// validateLocalMode checks how pods are distinguished from other clients. It checks the settings of all
// modes: they may be needed as soon as the mode changes.
func validateLocalMode(c *proxyconfig.KubeProxyConfiguration) field.ErrorList {
	bridge := field.NewPath("detectLocal", "bridgeInterface")
	prefix := field.NewPath("detectLocal", "interfaceNamePrefix")
	errs := slices.Concat(checkInterface(bridge, c.DetectLocal.BridgeInterface, false),
		checkInterface(prefix, c.DetectLocal.InterfaceNamePrefix, true))
	mode, err := parseLocalMode(string(c.DetectLocalMode))
	switch {
	case err != nil:
		errs = append(errs, oneOf(field.NewPath("detectLocalMode"), c.DetectLocalMode, "ClusterCIDR", "NodeCIDR",
			"BridgeInterface", "InterfaceNamePrefix")...)
	case mode == model.ByBridge && c.DetectLocal.BridgeInterface == "":
		errs = append(errs, field.Required(bridge, "detectLocalMode BridgeInterface needs it"))
	case mode == model.ByInterfacePrefix && c.DetectLocal.InterfaceNamePrefix == "":
		errs = append(errs, field.Required(prefix, "detectLocalMode InterfaceNamePrefix needs it"))
	}
	return errs
}

// checkInterface checks the name of an interface, or a prefix of names. It may be empty.
func checkInterface(path *field.Path, name string, prefix bool) field.ErrorList {
	if err := model.CheckInterface(name, prefix); err != nil {
		return invalid(path, name, err.Error())
	}
	return nil
}

func validateClusterCIDR(path *field.Path, list string) field.ErrorList {
	var errs field.ErrorList
	seen := map[model.Family]bool{}
	for s := range strings.SplitSeq(list, ",") {
		p, err := parseCIDR(s)
		switch {
		case list == "":
		case err != nil:
			errs = append(errs, invalid(path, s, "not a CIDR")...)
		case seen[model.FamilyOf(p.Addr())]:
			errs = append(errs, invalid(path, s, fmt.Sprintf("a second one of %v", model.FamilyOf(p.Addr())))...)
		default:
			seen[model.FamilyOf(p.Addr())] = true
		}
	}
	return errs
}

func validateHostPort(path *field.Path, s string) field.ErrorList {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return invalid(path, s, "not an IP address with or without a port")
	}
	if _, ok := parseIP(host); !ok {
		return invalid(path, s, fmt.Sprintf("%.100q is not an IP address", host))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return invalid(path, s, fmt.Sprintf("port %.100q is not between 1 and 65535", port))
	}
	return nil
}

func validateLogging(path *field.Path, c *logsapi.LoggingConfiguration) field.ErrorList {
	errs := oneOf(path.Child("format"), c.Format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
	errs = append(errs, between(path.Child("verbosity"), int64(c.Verbosity), 0, math.MaxInt32)...)
	for i, m := range c.VModule {
		if m.FilePattern == "" || strings.ContainsAny(m.FilePattern, "=,") {
			errs = append(errs, invalid(path.Child("vmodule").Index(i).Child("filePattern"), m.FilePattern,
				"empty, or with an equals sign or a comma")...)
		}
		errs = append(errs, between(path.Child("vmodule").Index(i).Child("verbosity"), int64(m.Verbosity), 0,
			math.MaxInt32)...)
	}
	return errs
}

// invalid returns an error about a value. It quotes the first 100 bytes of a string, and a
// duration in the form of the file.
func invalid(path *field.Path, value any, what string) field.ErrorList {
	switch v := value.(type) {
	case string:
		if len(v) > 100 {
			value = v[:100] + "…"
		}
	case time.Duration:
		value = v.String()
	}
	return field.ErrorList{field.Invalid(path, value, what)}
}

func oneOf[T ~string](path *field.Path, value T, all ...T) field.ErrorList {
	if slices.Contains(all, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, all)}
}

func between[T ~int32 | ~int64](path *field.Path, value, low, high T) field.ErrorList {
	if low <= value && value <= high {
		return nil
	}
	return invalid(path, value, fmt.Sprintf("not between %v and %v", low, high))
}

func notNegative[T ~int32 | ~int64](path *field.Path, value T) field.ErrorList {
	if value >= 0 {
		return nil
	}
	return invalid(path, value, "less than 0")
}

// parseIP reads an address as kube-proxy does: octets may have leading zeros.
func parseIP(s string) (a netip.Addr, ok bool) {
	a, ok = netip.AddrFromSlice(netutils.ParseIPSloppy(s))
	return a.Unmap(), ok
}

// parseCIDR reads a range as kube-proxy does: octets may have leading zeros.
func parseCIDR(s string) (netip.Prefix, error) {
	_, n, err := netutils.ParseCIDRSloppy(strings.TrimSpace(s))
	if err != nil {
		return netip.Prefix{}, err
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if a = a.Unmap(); bits == 128 && a.Is4() {
		ones -= 96 // written as IPv4 in IPv6
	}
	return a.Prefix(ones)
}

// parseLocalMode reads kube-proxy's names of the modes; "" is ClusterCIDR.
func parseLocalMode(s string) (model.LocalPodsMode, error) {
	switch s {
	case "", "ClusterCIDR":
		return model.ByClusterCIDR, nil
	case "NodeCIDR":
		return model.ByNodeCIDR, nil
	case "BridgeInterface":
		return model.ByBridge, nil
	case "InterfaceNamePrefix":
		return model.ByInterfacePrefix, nil
	}
	return 0, fmt.Errorf("%q is none of ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix", s)
}
