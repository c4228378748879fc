package config

import (
	"cmp"
	"net"
	"reflect"
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
	defaultLocalMode = "ClusterCIDR"
	healthzPort      = 10256
	metricsPort      = 10249
)

func period(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// setDefaults sets kube-proxy's defaults, but for the pause of a backend with short syncs.
func setDefaults(c *proxyconfig.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = proxyconfig.SchemeGroupVersion.String(), proxyKind
	fillIn(kubeProxySettings, c)
	anywhere, here := "0.0.0.0", "127.0.0.1"
	if a, _ := model.ParseAddr(c.BindAddress); a.Is6() {
		anywhere, here = "::", "::1"
	}
	c.HealthzBindAddress = withPort(cmp.Or(c.HealthzBindAddress, anywhere), healthzPort)
	c.MetricsBindAddress = withPort(cmp.Or(c.MetricsBindAddress, here), metricsPort)
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

func setOwnDefaults(c *VmapdConfiguration) {
	c.APIVersion, c.Kind = ownVersion.String(), ownKind
	fillIn(ownSettings, c)
}

// fillIn sets the fields of a configuration that have no value to their defaults.
func fillIn(settings []setting, config any) {
	for _, s := range settings {
		if s.def == nil {
			continue
		}
		f := fieldByPath(config, s.field)
		if !f.IsZero() {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		f.Set(reflect.ValueOf(s.def).Convert(f.Type()))
	}
}

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
