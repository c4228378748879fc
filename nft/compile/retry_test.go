package compile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft"
)

// chainsOf compiles a Service with one port of two endpoints, and returns the chain to which its cluster IP leads, with
// that of affinity before it: rules that translate or forget, without the draws after the first one.
func chainsOf(t *testing.T, o Options, service modeltest.Service, slice modeltest.Slice) (rules []string) {
	t.Helper()
	s := modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), service, slice).Family(model.IPv4)
	r := o.Compile(nil, s)
	for sp := range s.ServicePorts() {
		chains := map[string]nft.Chain{}
		for _, c := range r.Table().Chains {
			chains[c.Name] = c
		}
		fe := sp.Frontends[0]
		if a := affinityFor(sp); a.lists != nil {
			for _, rule := range chains[a.verdict(fe).Chain].Rules {
				rules = append(rules, rule.Text(model.IPv4))
			}
		}
		chosen := verdict(nft.FrontendsOf(fe.Kind), sp, fe).Chain
		rules = append(rules, chosen)
		for _, rule := range chains[chosen].Rules {
			if _, ok := rule[0].(nft.MatchProtocol); ok {
				rules = append(rules, rule.Text(model.IPv4))
			}
		}
	}
	return rules
}

func TestRetry(t *testing.T) {
	const (
		ip      = "172.30.0.41"
		draw    = "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints"
		tried   = "update @tried { ip saddr . th sport . ip daddr . th dport limit rate over 1/hour burst 2 packets } "
		forget  = "delete @affinity-ns1/web/tcp/p { ip saddr : ip daddr . th dport }"
		again   = "dnat ip to ip saddr map @affinity-ns1/web/tcp/p"
		hashed  = "dnat ip to ip daddr . meta l4proto . th dport . jhash ip saddr mod 13 seed 0x766d6170 map @endpoints"
		random  = "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 13 map @endpoints"
		set     = `ct timeout set "retry-tcp" `
		setDNS  = `ct timeout set "retry-dns" `
		withTCP = "meta l4proto tcp "
		withUDP = "meta l4proto udp "
	)
	web := modeltest.NewService("ns1/web").On(ip)
	pods := modeltest.NewSlice("ns1/web-1", "web").Ready("10.0.0.2", "10.0.0.3")
	off := func(s modeltest.Service) modeltest.Service {
		return s.Annotated(model.AnnotationConnectionRetry, "false")
	}
	tcp, udp, dns := web.TCP("p", 80), web.UDP("p", 80), web.UDP("p", 53)
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		slice   modeltest.Slice
		want    []string
	}{
		{"TCP", tcp, pods.TCP("p", 8080), []string{"endpoints-0-to-2", withTCP + set + draw}},
		{"TCP, off", off(tcp), pods.TCP("p", 8080), []string{"endpoints-0-to-2-no-retry", withTCP + draw}},
		{"UDP", udp, pods.UDP("p", 8080), []string{"endpoints-0-to-2", withTCP + set + draw}},
		{"DNS", dns, pods.UDP("p", 53), []string{"endpoints-0-to-2-dns", withTCP + draw, withUDP + setDNS + draw}},
		{"DNS, off", off(dns), pods.UDP("p", 53), []string{"endpoints-0-to-2", withTCP + set + draw}},
		{"affinity", tcp.Sticky(60), pods.TCP("p", 8080), []string{
			withTCP + tried + forget, withTCP + set + again, "endpoints-0-to-2", withTCP + set + draw,
		}},
		{"affinity, off", off(tcp.Sticky(60)), pods.TCP("p", 8080), []string{
			withTCP + again, "endpoints-0-to-2-no-retry", withTCP + draw,
		}},
		{"Maglev", tcp.Algorithm("maglev"), pods.TCP("p", 8080), []string{
			"endpoints-13-maglev", withTCP + set + tried + random, withTCP + set + hashed,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			retrying := Options{Timeouts: nft.RetryTimeouts(nil)}
			if diff := cmp.Diff(tt.want, chainsOf(t, retrying, tt.service, tt.slice)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}
