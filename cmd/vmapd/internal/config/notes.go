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

// noteIgnored adds a note for each field without effect that does not have its default, and for flags that are
// deprecated.
func (c *Config) noteIgnored() {
	defaults := both{new(proxyconfig.KubeProxyConfiguration), new(VmapdConfiguration)}
	setDefaults(defaults)
	same := func(path string) bool { // an empty list is like a missing one
		return equality.Semantic.DeepEqual(c.both().field(path).Interface(), defaults.field(path).Interface())
	}
	for _, s := range settings {
		switch given := c.flags.ConfigFile == "" && c.flags.given(s.flag); {
		case s.kind == deprecated && given:
			c.note(slog.LevelWarn, "--"+s.flag, "%s", s.help())
		case s.kind == ignored && s.field == "" && given:
			c.note(slog.LevelInfo, "--"+s.flag, "%s", s.help())
		case s.kind == ignored && s.field != "" && !same(s.field):
			c.note(slog.LevelInfo, c.place(s.field), "%s", s.help())
		}
	}
}

// noteSurprises adds notes for valid settings that may be mistakes.
func (c *Config) noteSurprises() {
	p, f, b := c.KubeProxy, c.flags, c.Backend
	if p.DetectLocalMode == defaultLocalMode && p.ClusterCIDR == "" {
		c.note(slog.LevelInfo, c.place("clusterCIDR"),
			"empty: pods cannot be distinguished from other clients, so traffic to cluster IPs is not masqueraded")
	}
	if _, note, _ := model.ParseAlgorithm(c.Own.LBAlgorithm); note != "" {
		c.note(slog.LevelWarn, c.place("lbAlgorithm"), "%s", note)
	}
	if c.Own.FastPath != "off" && b != NFTables && b != Auto {
		c.note(slog.LevelWarn, c.place("fastPath"), "ignored: the backend %s has no fast path", b)
	}
	if len(f.from) > 0 && p.ClientConnection.Kubeconfig != "" {
		c.note(slog.LevelInfo, c.place("clientConnection.kubeconfig"), "ignored because of --from")
	}
}

// The feature gates on which vmapd's behaviour depends.
const (
	allowExternalIPs = "AllowServiceExternalIPs"
	watchList        = "WatchList"       // the API server's name of the feature
	watchListClient  = "WatchListClient" // client-go's
)

var gates = map[string]string{
	allowExternalIPs: "external IPs of Services are served unless it is false",
	watchList:        "lists are streamed if the API server supports that, unless it is false",
	watchListClient:  "lists are streamed if the API server supports that, unless it is false",
}

func (c *Config) off(gate string) bool {
	on, set := c.KubeProxy.FeatureGates[gate]
	return set && !on
}

// PlainLists reports whether a gate ends streamed lists (KEP-3157): the API server is asked for plain lists.
func (c *Config) PlainLists() bool { return c.off(watchList) || c.off(watchListClient) }

// noteGates adds a note for each gate that is set. An unknown gate is not an error: files outlive gates.
func (c *Config) noteGates() {
	set := c.KubeProxy.FeatureGates
	for _, name := range slices.Sorted(maps.Keys(set)) {
		level, what := slog.LevelInfo, gates[name]
		if what == "" {
			level, what = slog.LevelWarn, "no effect: vmapd's behaviour does not depend on this gate"
		}
		c.note(level, c.set("featureGates", fmt.Sprintf("%s=%t", name, set[name])), "%s", what)
	}
}
