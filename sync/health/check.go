package health

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/logonce"
)

// check answers the health checks of one Service in one IP family.
type check struct {
	service model.NamespacedName
	family  model.Family
	healthy func() bool
	local   atomic.Int64 // ready endpoints on this node

	// The rest is Services.Run's alone.
	port      uint16
	listeners map[netip.Addr]*listener // the unspecified address stands for all of its family
	said      logonce.Error
}

// closeBut closes the listeners on all but some addresses.
func (c *check) closeBut(addrs ...netip.Addr) {
	for at, l := range c.listeners {
		if !slices.Contains(addrs, at) {
			l.close()
			delete(c.listeners, at)
		}
	}
}

// checkBody is the same as kube-proxy's.
type checkBody struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// ServeHTTP answers any request. It does not depend on Status.Eligible: ready endpoints on
// a node that is being deleted are still served (KEP-3836).
func (c *check) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body := checkBody{LocalEndpoints: c.local.Load(), ServiceProxyHealthy: c.healthy()}
	body.Service.Namespace, body.Service.Name = c.service.Namespace, c.service.Name
	text, _ := json.MarshalIndent(body, "", "\t") // it can't fail with these types
	// For load balancers that spread by it.
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(body.LocalEndpoints, 10))
	ok := body.LocalEndpoints > 0 && body.ServiceProxyHealthy
	answer{ok, typeJSON, string(text)}.send(w)
}
