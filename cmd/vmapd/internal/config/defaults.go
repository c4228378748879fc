package config

import (
	"cmp"
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// kube-proxy's defaults.
const (
	defaultSyncPeriod      = 30 * time.Second
	defaultDetectLocalMode = "ClusterCIDR"
	healthzPort            = 10256
	metricsPort            = 10249

	defaultMasqueradeBit int32 = 14
)

// minSyncPeriodOfIPTables is the default with mode iptables, where a sync may rewrite many
// rules. With other backends, syncs are short and need no pause.
const minSyncPeriodOfIPTables = time.Second

// setDefaults sets kube-proxy's defaults, but not those of the periods, which depend on the mode.
func setDefaults(c *proxyconfig.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = proxyconfig.SchemeGroupVersion.String(), proxyKind
	setDefault(&c.BindAddress, "0.0.0.0")
	anywhere, here := "0.0.0.0", "127.0.0.1"
	if netutils.IsIPv6String(c.BindAddress) {
		anywhere, here = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, anywhere), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, here), metricsPort)

	setDefault(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setDefault(&c.ClientConnection.QPS, 5)
	setDefault(&c.ClientConnection.Burst, 10)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
	setDefault((*string)(&c.DetectLocalMode), defaultDetectLocalMode)
	setDefault(&c.OOMScoreAdj, new(int32(-999)))
	setDefault(&c.IPTables.MasqueradeBit, new(defaultMasqueradeBit))
	setDefault(&c.IPTables.LocalhostNodePorts, new(true))
	setDefault(&c.NFTables.MasqueradeBit, new(defaultMasqueradeBit))
	setDefault(&c.Conntrack.MaxPerCore, new(int32(32<<10)))
	setDefault(&c.Conntrack.Min, new(int32(128<<10)))
	setDefault(&c.Conntrack.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	setDefault(&c.Conntrack.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
	setDefault(&c.ConfigSyncPeriod.Duration, 15*time.Minute)
}

func setDefault[T comparable](value *T, to T) { *value = cmp.Or(*value, to) }

// withPort adds a port to an address without one. It does not change malformed addresses: validation reports them.
func withPort(address string, port int32) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// period is one of a mode's two periods, with the field that sets it.
type period struct {
	value time.Duration
	field string
}

// periods returns the sync period and the minimum sync period of the running backend: those
// of its own section or, if that has none, of the section of kube-proxy's mode.
func periods(c *proxyconfig.KubeProxyConfiguration, running Backend) (sync, pause period) {
	sync, pause = period{defaultSyncPeriod, "syncPeriod"}, period{0, "minSyncPeriod"}
	mode := modeOf(c)
	if running == IPTables && mode == IPTables && c.Mode != "" {
		pause.value = minSyncPeriodOfIPTables
	}
	for _, b := range []Backend{mode, running} {
		s, p := section(c, b)
		if s.value != 0 {
			sync = s
		}
		if p.value != 0 {
			pause = p
		}
	}
	return sync, pause
}

// section returns the periods in a backend's section; auto's is that of nftables.
func section(c *proxyconfig.KubeProxyConfiguration, b Backend) (sync, pause period) {
	switch b {
	case IPTables:
		return period{c.IPTables.SyncPeriod.Duration, "iptables.syncPeriod"},
			period{c.IPTables.MinSyncPeriod.Duration, "iptables.minSyncPeriod"}
	case IPVS:
		return period{c.IPVS.SyncPeriod.Duration, "ipvs.syncPeriod"},
			period{c.IPVS.MinSyncPeriod.Duration, "ipvs.minSyncPeriod"}
	case NFTables, Auto, Userspace:
	}
	return period{c.NFTables.SyncPeriod.Duration, "nftables.syncPeriod"},
		period{c.NFTables.MinSyncPeriod.Duration, "nftables.minSyncPeriod"}
}
