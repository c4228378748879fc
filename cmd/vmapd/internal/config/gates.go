package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// gate is one of kube-proxy's feature gates.
type gate struct {
	is   fixed
	what string // vmapd's behaviour
}

// fixed is the value of a gate that matches vmapd's behaviour.
type fixed uint8

const (
	neither fixed = iota // nothing depends on the gate
	on
	off
	either // vmapd does what the gate says
)

// The gates that vmapd's behaviour depends on.
const (
	allowExternalIPs = "AllowServiceExternalIPs"
	watchList        = "WatchList"       // the API server's name of the feature
	watchListClient  = "WatchListClient" // client-go's
)

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

// gates are the feature gates that kube-proxy reads, or used to. vmapd's behaviour depends on
// a few of them.
var gates = map[string]gate{
	allowExternalIPs:                      {either, "external IPs of Services are served unless it is false"},
	"ComponentFlagz":                      {neither, ""},
	"ComponentStatusz":                    {neither, ""},
	"ContextualLogging":                   {neither, ""},
	"EndpointSlice":                       {on, "endpoints come from EndpointSlices"},
	"EndpointSliceProxying":               {on, "endpoints come from EndpointSlices"},
	"IPv6DualStack":                       {on, "both families are served"},
	"KubeProxyDrainingTerminatingNodes":   {on, "a Node that is about to be deleted fails the health check of load balancers"},
	"KubeProxyIPVS":                       {on, "mode ipvs is supported"},
	"KubeProxyNFTablesLocalhostNodePorts": {on, "node ports answer on loopback if nodePortAddresses has localhost"},
	"LoadBalancerIPMode":                  {on, "addresses with ipMode Proxy are not served: the load balancer handles them"},
	"LoggingAlphaOptions":                 {off, "these options of the log are not supported"},
	"LoggingBetaOptions":                  {neither, ""},
	"MinimizeIPTablesRestore":             {on, "only changed chains are written"},
	"MultiCIDRServiceAllocator":           {on, "ServiceCIDRs are watched if the cluster has them"},
	"NFTablesNetlink":                     {on, "nftables are read and written over netlink"},
	"NFTablesProxyMode":                   {on, "mode nftables is supported"},
	"PreferSameTrafficDistribution":       {on, "hints for nodes and zones are honoured"},
	"ProxyTerminatingEndpoints":           {on, "if no endpoint is ready, serving terminating endpoints are used"},
	"SCTPSupport":                         {on, "SCTP is served"},
	"ServiceInternalTrafficPolicy":        {on, "internalTrafficPolicy is honoured"},
	"ServiceLBNodePortControl":            {on, "node ports are optional"},
	"ServiceTrafficDistribution":          {on, "hints are honoured"},
	"SupportIPVSProxyMode":                {on, "mode ipvs is supported"},
	"TopologyAwareHints":                  {on, "hints are honoured"},
	watchList:                             {either, "lists are streamed if the API server supports that, unless it is false"},
	watchListClient:                       {either, "lists are streamed if the API server supports that, unless it is false"},
	"WinDSR":                              {off, windowsOnly},
	"WinOverlay":                          {off, windowsOnly},
}

// noteGates adds a note for each gate that is set. An unknown gate is not an error: files
// outlive gates.
func (l *loader) noteGates() {
	c := l.kubeProxy
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		value := c.FeatureGates[name]
		place := l.place("featureGates")
		if l.flags.ConfigFile != "" {
			place += "." + name
		} else {
			place += fmt.Sprintf("=%s=%t", name, value)
		}
		g, known := gates[name]
		switch {
		case !known:
			l.note(slog.LevelWarn, place, "ignored: vmapd does not know this gate")
		case g.is == either:
			l.note(slog.LevelInfo, place, "%t: %s", value, g.what)
		case g.is == neither:
			l.note(slog.LevelInfo, place, "ignored: nothing depends on it")
		case value == (g.is == on):
			l.note(slog.LevelInfo, place, "%t, as always: %s", value, g.what)
		default:
			l.note(slog.LevelWarn, place, "%t has no effect: %s", value, g.what)
		}
	}
}
