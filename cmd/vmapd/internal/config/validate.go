package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// validate checks a configuration that has its defaults, but not the section ipvs: see [validateIPVS]. As all checks
// here, it returns the first error, or nil.
func validate(c *proxyconfig.KubeProxyConfiguration) *field.Error {
	path := field.NewPath
	if c.ConfigSyncPeriod.Duration <= 0 {
		return field.Invalid(path("configSyncPeriod"), c.ConfigSyncPeriod, "not more than 0")
	}
	if _, err := model.ParseAddr(c.BindAddress); err != nil {
		return field.Invalid(path("bindAddress"), c.BindAddress, "not an IP address")
	}
	for i, s := range c.NodePortAddresses {
		if _, err := ParseNodePortAddresses([]string{s}); err != nil {
			return field.Invalid(path("nodePortAddresses").Index(i), s, "neither primary, all, localhost nor a CIDR")
		}
	}
	return cmp.Or(
		oneOf(path("mode"), c.Mode, "", proxyconfig.ProxyMode(IPTables), proxyconfig.ProxyMode(IPVS),
			proxyconfig.ProxyMode(NFTables)),
		between(path("iptables", "masqueradeBit"), *c.IPTables.MasqueradeBit, 0, 31),
		between(path("nftables", "masqueradeBit"), *c.NFTables.MasqueradeBit, 0, 31),
		between(path("oomScoreAdj"), *c.OOMScoreAdj, -1000, 1000),
		between(path("clientConnection", "burst"), c.ClientConnection.Burst, 0, math.MaxInt32),
		validateHostPort(path("healthzBindAddress"), c.HealthzBindAddress),
		validateHostPort(path("metricsBindAddress"), c.MetricsBindAddress),
		validatePeriods(c),
		validateConntrack(path("conntrack"), &c.Conntrack),
		validateLocalMode(c),
		validateClusterCIDR(path("clusterCIDR"), c.ClusterCIDR),
		validateLogging(path("logging"), c.Logging),
	)
}

// validatePeriods checks the periods of the mode's section.
func validatePeriods(c *proxyconfig.KubeProxyConfiguration) *field.Error {
	path, sync, pause := periods(c)
	if sync.Duration >= 0 && pause.Duration > sync.Duration {
		return field.Invalid(path.Child("minSyncPeriod"), pause, fmt.Sprintf("more than syncPeriod (%v)", sync.Duration))
	}
	return cmp.Or(notNegative(path.Child("syncPeriod"), sync), notNegative(path.Child("minSyncPeriod"), pause))
}

// validateIPVS checks the section ipvs.
func validateIPVS(c *proxyconfig.KubeProxyConfiguration) *field.Error {
	path := field.NewPath("ipvs")
	if s := c.IPVS.Scheduler; s != "" && !slices.Contains(ipvs.Schedulers, s) {
		return field.NotSupported(path.Child("scheduler"), s, ipvs.Schedulers)
	}
	return cmp.Or(
		notNegative(path.Child("syncPeriod"), &c.IPVS.SyncPeriod),
		notNegative(path.Child("minSyncPeriod"), &c.IPVS.MinSyncPeriod),
		validateExcludeCIDRs(c),
		wholeSeconds(path.Child("tcpTimeout"), &c.IPVS.TCPTimeout),
		wholeSeconds(path.Child("tcpFinTimeout"), &c.IPVS.TCPFinTimeout),
		wholeSeconds(path.Child("udpTimeout"), &c.IPVS.UDPTimeout),
	)
}

func validateExcludeCIDRs(c *proxyconfig.KubeProxyConfiguration) *field.Error {
	return areCIDRs(field.NewPath("ipvs", "excludeCIDRs"), c.IPVS.ExcludeCIDRs)
}

func validateConntrack(path *field.Path, c *proxyconfig.KubeProxyConntrackConfiguration) *field.Error {
	return cmp.Or(
		between(path.Child("maxPerCore"), *c.MaxPerCore, 0, math.MaxInt32),
		between(path.Child("min"), *c.Min, 0, math.MaxInt32),
		notNegative(path.Child("tcpEstablishedTimeout"), c.TCPEstablishedTimeout),
		notNegative(path.Child("tcpCloseWaitTimeout"), c.TCPCloseWaitTimeout),
		notNegative(path.Child("udpTimeout"), &c.UDPTimeout),
		notNegative(path.Child("udpStreamTimeout"), &c.UDPStreamTimeout),
	)
}

// localModes are the model's names of kube-proxy's modes.
var localModes = map[proxyconfig.LocalMode]model.LocalPodsMode{
	defaultDetectLocalMode: model.ByClusterCIDR,
	"NodeCIDR":             model.ByNodeCIDR,
	"BridgeInterface":      model.ByBridge,
	"InterfaceNamePrefix":  model.ByInterfacePrefix,
}

// validateLocalMode checks how pods are distinguished from other clients. It checks the settings of all
// modes: they may be needed as soon as the mode changes.
func validateLocalMode(c *proxyconfig.KubeProxyConfiguration) *field.Error {
	bridge := field.NewPath("detectLocal", "bridgeInterface")
	prefix := field.NewPath("detectLocal", "interfaceNamePrefix")
	mode, known := localModes[c.DetectLocalMode]
	switch {
	case !known:
		return field.NotSupported(field.NewPath("detectLocalMode"), c.DetectLocalMode, slices.Sorted(maps.Keys(localModes)))
	case mode == model.ByBridge && c.DetectLocal.BridgeInterface == "":
		return field.Required(bridge, "detectLocalMode BridgeInterface needs it")
	case mode == model.ByInterfacePrefix && c.DetectLocal.InterfaceNamePrefix == "":
		return field.Required(prefix, "detectLocalMode InterfaceNamePrefix needs it")
	}
	return cmp.Or(checkInterface(bridge, c.DetectLocal.BridgeInterface, false),
		checkInterface(prefix, c.DetectLocal.InterfaceNamePrefix, true))
}

// checkInterface checks the name of an interface, or a prefix of names. It may be empty.
func checkInterface(path *field.Path, name string, prefix bool) *field.Error {
	if err := model.CheckInterface(name, prefix); err != nil {
		return field.Invalid(path, name, err.Error())
	}
	return nil
}

func validateClusterCIDR(path *field.Path, list string) *field.Error {
	if list == "" {
		return nil
	}
	seen := map[model.Family]bool{}
	for s := range strings.SplitSeq(list, ",") {
		p, err := model.ParsePrefix(s)
		if err != nil {
			return field.Invalid(path, s, "not a CIDR")
		}
		family := model.FamilyOf(p.Addr())
		if seen[family] {
			return field.Invalid(path, s, fmt.Sprintf("a second one of %v", family))
		}
		seen[family] = true
	}
	return nil
}

func validateHostPort(path *field.Path, s string) *field.Error {
	host, port, err := net.SplitHostPort(s)
	_, errIP := model.ParseAddr(host)
	n, _ := strconv.ParseUint(port, 10, 16)
	if err != nil || errIP != nil || n == 0 {
		return field.Invalid(path, s, "not an IP address with or without a port from 1 to 65535")
	}
	return nil
}

// validateLogging does not check the options of formats, which are ignored.
func validateLogging(path *field.Path, c logsapi.LoggingConfiguration) *field.Error {
	c.Options = logsapi.FormatOptions{}
	return cmp.Or(logsapi.Validate(&c, nil, path)...)
}

func oneOf[T ~string](path *field.Path, value T, all ...T) *field.Error {
	if slices.Contains(all, value) {
		return nil
	}
	return field.NotSupported(path, value, all)
}

func between(path *field.Path, value, low, high int32) *field.Error {
	if low <= value && value <= high {
		return nil
	}
	return field.Invalid(path, value, fmt.Sprintf("not between %d and %d", low, high))
}

func notNegative(path *field.Path, d *metav1.Duration) *field.Error {
	if d.Duration >= 0 {
		return nil
	}
	return field.Invalid(path, d, "less than 0")
}

func wholeSeconds(path *field.Path, d *metav1.Duration) *field.Error {
	if d.Duration%time.Second != 0 {
		return field.Invalid(path, d, "not a number of whole seconds")
	}
	return notNegative(path, d)
}

func areCIDRs(path *field.Path, list []string) *field.Error {
	for i, s := range list {
		if _, err := model.ParsePrefix(s); err != nil {
			return field.Invalid(path.Index(i), s, "not a CIDR")
		}
	}
	return nil
}
