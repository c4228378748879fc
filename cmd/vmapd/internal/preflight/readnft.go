package preflight

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/preflight/tablesim"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Table is the name of kube-proxy's tables in mode nftables.
const Table = "kube-proxy"

// ReadNFT finds kube-proxy's table in a listing of nft, and returns nil without one.
func ReadNFT(f model.Family, text string) (*Rules, error) {
	t, err := tablesim.Parse(text, f, Table)
	if err != nil || t == nil {
		return nil, err
	}
	return OfTable(t), nil
}

// OfTable returns the rules of kube-proxy's table.
func OfTable(t *tablesim.Table) *Rules {
	r := &Rules{Mode: "nftables", Destinations: map[model.VIP]string{}}
	r.on = func(isLocal func(netip.Addr) bool) (simulator, error) {
		return func(c model.Connection) (modeltest.Outcome, error) { return t.Run(isLocal, c) }, nil
	}
	for _, name := range []string{"service-ips", "no-endpoint-services"} {
		r.addDestinations(t, name, 1)
	}
	for _, name := range []string{"service-nodeports", "no-endpoint-nodeports"} {
		r.addDestinations(t, name, 0)
	}
	return r
}

// addDestinations adds the elements of a map: [address .] protocol . port.
func (r *Rules) addDestinations(t *tablesim.Table, name string, at int) {
	m := t.Sets[name]
	if m == nil {
		return
	}
	for _, e := range m.Elements {
		if len(e.From) != at+2 || len(e.From[at]) != 1 || len(e.From[at+1]) != 2 {
			continue
		}
		v := model.VIP{Addr: t.Family.Unspecified(), Protocol: model.Protocol(e.From[at][0]), Port: binary.BigEndian.Uint16(e.From[at+1])}
		if at > 0 {
			v.Addr, _ = netip.AddrFromSlice(e.From[0])
		}
		if name := serviceOfChain(e.Verdict.Chain, e.Comment); name != "" || r.Destinations[v] == "" {
			r.Destinations[v] = name
		}
	}
}

// serviceOfChain returns the Service of a chain like service-ULMVA6XW-ns1/svc1/tcp/p80 or, without
// one, of an element's comment like ns1/svc1:p80.
func serviceOfChain(chain, comment string) string {
	if _, rest, ok := strings.Cut(chain, "-"); ok {
		if _, name, ok := strings.Cut(rest, "-"); ok {
			if parts := strings.Split(name, "/"); len(parts) >= 2 {
				return strings.Join(slices.Clip(parts[:2]), "/")
			}
		}
	}
	name, _, _ := strings.Cut(comment, ":")
	return name
}
