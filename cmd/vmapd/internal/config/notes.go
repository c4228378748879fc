package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/model"
)

// noteIgnored adds a note for each field without effect that does not have its default.
func (l *loader) noteIgnored() {
	var defaults proxyconfig.KubeProxyConfiguration
	setDefaults(&defaults)
	var ownDefaults VmapdConfiguration
	setOwnDefaults(&ownDefaults)
	note := func(settings []setting, given, defaults any) {
		for _, s := range settings {
			switch {
			case s.kind != ignored:
			case s.field == "":
				if l.flags.given(s.flag) && l.flags.ConfigFile == "" {
					l.note(slog.LevelInfo, "--"+s.flag, "ignored: %s", s.what)
				}
			case !sameField(s.field, given, defaults):
				l.note(slog.LevelInfo, l.place(s.field), "ignored: %s", s.what)
			}
		}
	}
	note(kubeProxySettings, l.kubeProxy, &defaults)
	note(ownSettings, l.own, &ownDefaults)
}

// noteSurprises adds notes for valid settings that may be mistakes.
func (l *loader) noteSurprises(b Backend) {
	c, f := l.kubeProxy, l.flags
	if c.DetectLocalMode == defaultDetectLocalMode && c.ClusterCIDR == "" {
		l.note(slog.LevelInfo, l.place("clusterCIDR"),
			"empty: pods cannot be distinguished from other clients, so traffic to cluster IPs is not masqueraded")
	}
	if c.Mode == "" && c.IPTables.MasqueradeAll && f.ConfigFile != "" {
		l.note(slog.LevelInfo, l.place("iptables.masqueradeAll"), "applies to any backend, because mode is empty")
	}
	if _, note, _ := model.ParseAlgorithm(l.own.LBAlgorithm); note != "" {
		l.note(slog.LevelWarn, l.place("lbAlgorithm"), "%s", note)
	}
	if l.own.FastPath != "off" && b != NFTables && b != Auto {
		l.note(slog.LevelWarn, l.place("fastPath"), "ignored: the backend %s has no fast path", b)
	}
	for _, name := range []string{"healthz-port", "metrics-port"} {
		if f.given(name) && f.ConfigFile == "" {
			address := name[:len(name)-len("port")] + "bind-address"
			l.note(slog.LevelWarn, "--"+name, "deprecated: use --%s; only 0, or the port of an address without one, "+
				"has an effect", address)
		}
	}
	if len(f.from) > 0 && c.ClientConnection.Kubeconfig != "" {
		l.note(slog.LevelInfo, l.place("clientConnection.kubeconfig"), "ignored because of --from")
	}
}

// sameField reports whether two configurations of the same type agree in a field; an empty list is like a missing one.
func sameField(path string, a, b any) bool {
	return equality.Semantic.DeepEqual(fieldByPath(a, path).Interface(), fieldByPath(b, path).Interface())
}

// Compare returns the paths of the fields in which two configurations differ, but for those without effect.
func Compare(before, after *Config) (differ []string) {
	compare := func(settings []setting, before, after any) {
		for _, s := range settings {
			if s.field != "" && s.kind != ignored && !sameField(s.field, before, after) {
				differ = append(differ, s.field)
			}
		}
	}
	compare(kubeProxySettings, before.kubeProxy, after.kubeProxy)
	compare(ownSettings, &before.own, &after.own)
	return differ
}

// The feature gates on which vmapd's behaviour depends.
const (
	allowExternalIPs = "AllowServiceExternalIPs"
	watchList        = "WatchList"       // the API server's name of the feature
	watchListClient  = "WatchListClient" // client-go's
)

// gates say what vmapd does about these.
var gates = map[string]string{
	allowExternalIPs: "external IPs of Services are served unless it is false",
	watchList:        "lists are streamed if the API server supports that, unless it is false",
	watchListClient:  "lists are streamed if the API server supports that, unless it is false",
}

// noExternalIPs reports whether the gate ends external IPs of Services (KEP-5707).
func (l *loader) noExternalIPs() bool {
	allowed, set := l.kubeProxy.FeatureGates[allowExternalIPs]
	return set && !allowed
}

// PlainLists reports whether a gate ends streamed lists (KEP-3157): the API server is asked for plain lists.
func (c *Config) PlainLists() bool {
	for _, gate := range []string{watchList, watchListClient} {
		if streamed, set := c.kubeProxy.FeatureGates[gate]; set && !streamed {
			return true
		}
	}
	return false
}

// noteGates adds a note for each gate that is set. An unknown gate is not an error: files outlive gates.
func (l *loader) noteGates() {
	c := l.kubeProxy
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		place := l.place("featureGates")
		if l.flags.ConfigFile != "" {
			place += "." + name
		} else {
			place += fmt.Sprintf("=%s=%t", name, c.FeatureGates[name])
		}
		if what := gates[name]; what != "" {
			l.note(slog.LevelInfo, place, "%t: %s", c.FeatureGates[name], what)
		} else {
			l.note(slog.LevelWarn, place, "no effect: vmapd's behaviour does not depend on this gate")
		}
	}
}
