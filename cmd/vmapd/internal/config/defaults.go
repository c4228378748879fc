package config

import (
	"cmp"
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
)

// kube-proxy's defaults.
const (
	defaultSyncPeriod      = 30 * time.Second
	defaultDetectLocalMode = "ClusterCIDR"
	healthzPort            = 10256
	metricsPort            = 10249

	defaultMasqueradeBit int32 = 14
)

// setDefaults sets kube-proxy's defaults, but for the pause of a backend with short syncs.
func setDefaults(c *proxyconfig.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = proxyconfig.SchemeGroupVersion.String(), proxyKind
	setDefault(&c.BindAddress, "0.0.0.0")
	anywhere, here := "0.0.0.0", "127.0.0.1"
	if a, _ := model.ParseAddr(c.BindAddress); a.Is6() {
		anywhere, here = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, anywhere), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, here), metricsPort)

	setDefault(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setDefault(&c.ClientConnection.QPS, 5)
	setDefault(&c.ClientConnection.Burst, 10)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
	setDefault(&c.DetectLocalMode, defaultDetectLocalMode)
	setDefault(&c.OOMScoreAdj, new(int32(-999)))
	for _, sync := range []*metav1.Duration{&c.IPTables.SyncPeriod, &c.IPVS.SyncPeriod, &c.NFTables.SyncPeriod} {
		setDefault(&sync.Duration, defaultSyncPeriod)
	}
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
	if _, err := model.ParseAddr(address); err != nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// periods returns the section of kube-proxy's mode, with its syncPeriod and minSyncPeriod.
func periods(c *proxyconfig.KubeProxyConfiguration) (path *field.Path, sync, pause *metav1.Duration) {
	switch modeOf(c) {
	case IPVS:
		return field.NewPath("ipvs"), &c.IPVS.SyncPeriod, &c.IPVS.MinSyncPeriod
	case NFTables:
		return field.NewPath("nftables"), &c.NFTables.SyncPeriod, &c.NFTables.MinSyncPeriod
	case IPTables, Auto, Userspace:
	}
	return field.NewPath("iptables"), &c.IPTables.SyncPeriod, &c.IPTables.MinSyncPeriod
}
