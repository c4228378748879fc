package config

import (
	"log/slog"
	"net/netip"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
)

// noteIgnored names each field that is set, other than by default, and means nothing here.
func (l *loader) noteIgnored() {
	var defaults proxyconfig.KubeProxyConfiguration
	setDefaults(&defaults)
	for _, s := range kubeProxySettings {
		switch {
		case s.fate != ignored || s.field == "featureGates":
		case s.field == "":
			if l.flags.given(s.flag) && l.flags.ConfigFile == "" {
				l.note(slog.LevelInfo, "--"+s.flag, "ignored: %s", s.what)
			}
		case !sameField(s.field, l.kubeProxy, &defaults):
			l.note(slog.LevelInfo, l.place(s.field), "ignored: %s", s.what)
		}
	}
}

// noteSurprises says what is valid and yet may not be meant.
func (l *loader) noteSurprises(b Backend) {
	c, f := l.kubeProxy, l.flags
	if c.DetectLocalMode == defaultDetectLocalMode && c.ClusterCIDR == "" {
		l.note(slog.LevelInfo, l.place("clusterCIDR"), "empty: pods are not told from other clients; what comes to a cluster IP is not masqueraded")
	}
	if c.Mode == "" && c.IPTables.MasqueradeAll && f.ConfigFile != "" {
		l.note(slog.LevelInfo, l.place("iptables.masqueradeAll"), "counts with any backend, as no mode says which section counts")
	}
	if b != IPVS && *c.IPTables.MasqueradeBit > maxIPVSBit {
		l.note(slog.LevelInfo, l.place("iptables.masqueradeBit"), "%d: ipvs, if it is used, takes %d", *c.IPTables.MasqueradeBit, maxIPVSBit)
	}
	for _, name := range []string{"healthz-port", "metrics-port"} {
		if f.given(name) && f.ConfigFile == "" {
			address := name[:len(name)-len("port")] + "bind-address"
			l.note(slog.LevelWarn, "--"+name, "deprecated: use --%s; it counts if it is 0, or if that has no port", address)
		}
	}
	if len(f.from) > 0 && c.ClientConnection.Kubeconfig != "" {
		l.note(slog.LevelInfo, l.place("clientConnection.kubeconfig"), "not used: --from reads files")
	}
	if l.own.MetricsAuthentication == TokenAuthentication && l.own.MetricsTLS.CertFile == "" {
		if a, err := netip.ParseAddrPort(c.MetricsBindAddress); err == nil && !a.Addr().IsLoopback() {
			l.note(slog.LevelWarn, l.ownPlace("metricsAuthentication"), "tokens come in plain text: there is no certificate (metricsTLS)")
		}
	}
}

// sameField reports whether two configurations of the same type agree in a field.
func sameField(path string, a, b any) bool {
	x, y := fieldByPath(a, path), fieldByPath(b, path)
	return isEmpty(x) && isEmpty(y) || equality.Semantic.DeepEqual(x.Interface(), y.Interface())
}

// isEmpty treats lists without elements like those that are not there.
func isEmpty(v reflect.Value) bool {
	return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// fieldByPath returns the field of the struct that c points to.
func fieldByPath(c any, path string) reflect.Value {
	v := reflect.ValueOf(c).Elem()
	all := leaves(v.Type())
	i := slices.IndexFunc(all, func(m member) bool { return m.name == path })
	return v.FieldByIndex(all[i].index)
}
