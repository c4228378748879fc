package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// gate is one of kube-proxy's feature gates.
type gate struct {
	does whether
	what string // what is the case here, whatever the gate is set to
}

// whether says which setting of a gate is what happens anyway.
type whether uint8

const (
	means  whether = iota // neither: nothing here depends on it
	always                // true
	never                 // false
)

// gates are those that kube-proxy reads, or did. None changes anything here.
var gates = map[string]gate{
	"AllowServiceExternalIPs":             {always, "external IPs of Services are served"},
	"ComponentFlagz":                      {means, ""},
	"ComponentStatusz":                    {means, ""},
	"ContextualLogging":                   {means, ""},
	"EndpointSlice":                       {always, "endpoints come from EndpointSlices"},
	"EndpointSliceProxying":               {always, "endpoints come from EndpointSlices"},
	"IPv6DualStack":                       {always, "both families are served"},
	"KubeProxyDrainingTerminatingNodes":   {always, "a node that is being deleted fails its health check for load balancers"},
	"KubeProxyIPVS":                       {always, "mode ipvs is there"},
	"KubeProxyNFTablesLocalhostNodePorts": {always, "node ports answer on loopback if nodePortAddresses has localhost"},
	"LoadBalancerIPMode":                  {always, "addresses with ipMode Proxy are left to the load balancer"},
	"LoggingAlphaOptions":                 {never, "the log has none of these options"},
	"LoggingBetaOptions":                  {means, ""},
	"MinimizeIPTablesRestore":             {always, "only what changed is written"},
	"MultiCIDRServiceAllocator":           {always, "ServiceCIDRs are read where the cluster has them"},
	"NFTablesNetlink":                     {always, "nftables are read and written over netlink"},
	"NFTablesProxyMode":                   {always, "mode nftables is there"},
	"PreferSameTrafficDistribution":       {always, "hints for nodes and zones are followed"},
	"ProxyTerminatingEndpoints":           {always, "where no endpoint is ready, terminating ones that serve are used"},
	"SCTPSupport":                         {always, "SCTP is served"},
	"ServiceInternalTrafficPolicy":        {always, "internalTrafficPolicy is followed"},
	"ServiceLBNodePortControl":            {always, "Services may do without node ports"},
	"ServiceTrafficDistribution":          {always, "hints are followed"},
	"SupportIPVSProxyMode":                {always, "mode ipvs is there"},
	"TopologyAwareHints":                  {always, "hints are followed"},
	"WatchList":                           {always, "the first list is streamed where the API server can"},
	"WinDSR":                              {never, windowsOnly},
	"WinOverlay":                          {never, windowsOnly},
}

// noteGates names each gate that is set. An unknown one does not keep a node from working:
// a file lives longer than a gate.
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
			l.note(slog.LevelWarn, place, "ignored: no gate of this name is known here")
		case g.does == means:
			l.note(slog.LevelInfo, place, "ignored: nothing depends on it here")
		case value == (g.does == always):
			l.note(slog.LevelInfo, place, "%t, which is so in any case: %s", value, g.what)
		default:
			l.note(slog.LevelWarn, place, "%t has no effect: %s", value, g.what)
		}
	}
}
