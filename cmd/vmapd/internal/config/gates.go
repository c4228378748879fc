package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

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
