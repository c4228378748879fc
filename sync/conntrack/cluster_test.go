package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// parse reads "udp 172.30.0.10:53 from 10.0.0.2:8053": a flow to the first address that the
// second answers. Without the second, it is not translated. With "unanswered" at the end, no answer came; with
// "in a zone", the default zone is not its.
func parse(t testing.TB, text string) Flow {
	t.Helper()
	text, isElsewhere := strings.CutSuffix(text, " in a zone")
	text, unanswered := strings.CutSuffix(text, " unanswered")
	fields := strings.Fields(text)
	protocol, err := model.ParseProtocol(strings.ToUpper(fields[0]))
	if err != nil {
		t.Fatal(err)
	}
	f := Flow{Protocol: protocol, Dest: netip.MustParseAddrPort(fields[1]), Answered: !unanswered, Zone: isElsewhere}
	f.Source = netip.MustParseAddrPort("203.0.113.9:40000")
	if f.Dest.Addr().Is6() {
		f.Source = netip.MustParseAddrPort("[2001:db8:203::9]:40000")
	}
	f.ReplySource = f.Dest
	if len(fields) > 2 && fields[2] == "from" {
		f.ReplySource = netip.MustParseAddrPort(fields[3])
		f.Translated = true
	}
	return f
}

// cluster is a Builder with the notes on its snapshots.
type cluster struct {
	*model.Builder
	families [len(model.Families)]family
}

func newCluster(objects ...modeltest.Object) *cluster {
	return &cluster{Builder: modeltest.Builder(modeltest.Config(), append(objects, modeltest.OurNode(),
		modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "fd00:172:30::/112"))...)}
}

// apply tells of a round.
func (c *cluster) apply(now time.Time) {
	s := c.Snapshot()
	for _, f := range model.Families {
		c.families[f].take(s.Family(f), now, false)
	}
}

// list makes the next pass list everything.
func (c *cluster) list() {
	for i := range c.families {
		c.families[i].listed = time.Time{}
	}
}

// selects reports whether a kernel that filters lists a flow.
func (q Filter) selects(f *Flow) bool {
	isKnown := func(a netip.AddrPort) bool { return a.Addr().Is4() && !a.Addr().IsUnspecified() }
	return q.Protocol == 0 || q.Protocol == f.Protocol &&
		(!q.Dest.IsValid() || q.Dest.Port() == f.Dest.Port()) &&
		(!isKnown(q.Dest) || q.Dest.Addr() == f.Dest.Addr()) &&
		(!q.Endpoint.IsValid() || q.Endpoint.Port() == f.ReplySource.Port()) &&
		(!isKnown(q.Endpoint) || q.Endpoint.Addr() == f.ReplySource.Addr())
}

// pass returns which of the flows would be deleted, and whether there was anything to do.
func (c *cluster) pass(t testing.TB, now time.Time, flows ...string) (deleted []string, did bool) {
	t.Helper()
	for i := range c.families {
		f := &c.families[i]
		p := f.begin(now)
		if p == nil {
			continue
		}
		did = true
		for _, text := range flows {
			flow := parse(t, text)
			listed := slices.ContainsFunc(p.filters(), func(q Filter) bool { return q.selects(&flow) })
			if model.FamilyOf(flow.Dest.Addr()) == model.Families[i] && listed && f.stale(p, &flow) {
				deleted = append(deleted, text)
			}
		}
		f.end(p, nil)
	}
	return deleted, did
}

// wantPass checks which flows a pass deletes.
func (c *cluster) wantPass(t *testing.T, what string, now time.Time, want, flows []string) (did bool) {
	t.Helper()
	got, did := c.pass(t, now, flows...)
	testaid.Equal(t, what+": deleted", slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got)))
	return did
}

// unanswered are flows as they are before their answer.
func unanswered(flows []string) (list []string) {
	for _, flow := range flows {
		list = append(list, flow+" unanswered")
	}
	return list
}

func dns() modeltest.Service {
	return modeltest.NewService("kube-system/dns").Typed("LoadBalancer").On("172.30.0.10", "fd00:172:30::10").
		LoadBalancer("192.168.98.10", "fd00:192:168:98::10").External("192.168.99.10", "fd00:192:168:99::10").
		UDP("dns", 53).NodePort(30053).TCP("dns-tcp", 53).NodePort(30053).
		Port(model.Port{Name: "dns-sctp", Protocol: "SCTP", Port: 53, NodePort: 30053})
}

// dnsSlices are its endpoints: pods 10.0.0.N and fd00:10::N.
func dnsSlices(options []func(*model.SliceEndpoint), pods ...int) []modeltest.Object {
	v4 := modeltest.NewSlice("kube-system/dns-4", "dns")
	v6 := modeltest.NewSlice("kube-system/dns-6", "dns").IPv6()
	for _, s := range []*modeltest.Slice{&v4, &v6} {
		*s = s.UDP("dns", 8053).TCP("dns-tcp", 8053).Port("dns-sctp", "SCTP", 8053)
	}
	for _, n := range pods {
		v4 = v4.Endpoint(fmt.Sprintf("10.0.0.%d", n), options...)
		v6 = v6.Endpoint(fmt.Sprintf("fd00:10::%d", n), options...)
	}
	return []modeltest.Object{v4, v6}
}

func set(c *cluster, objects ...modeltest.Object) {
	for _, o := range objects {
		o.Set(c.Builder)
	}
}

// toDNS gives flows to all addresses of dns that pod n answers; to none, if n is 0.
func toDNS(protocol string, n int) []string {
	var list []string
	for _, dest := range []string{"172.30.0.10:53", "192.168.98.10:53", "192.168.99.10:53", "192.168.0.2:30053"} {
		list = append(list, fmt.Sprintf("%s %s from 10.0.0.%d:8053", protocol, dest, n))
	}
	for _, dest := range []string{"[fd00:172:30::10]:53", "[fd00:192:168:98::10]:53", "[fd00:192:168:99::10]:53", "[fd00:192:168::2]:30053"} {
		list = append(list, fmt.Sprintf("%s %s from [fd00:10::%d]:8053", protocol, dest, n))
	}
	if n == 0 {
		for i := range list {
			list[i], _, _ = strings.Cut(list[i], " from")
		}
	}
	return list
}

// others are flows that no pass may touch, whatever becomes of dns.
var others = []string{
	"udp 203.0.113.8:53",                       // to somebody's server
	"udp 203.0.113.8:30053",                    // … with a node port's number
	"udp 203.0.113.8:53 from 10.0.0.2:8053",    // translated, by somebody
	"udp 10.0.0.2:8053",                        // straight to a pod
	"udp 192.168.0.2:53",                       // the node's own server
	"udp 192.168.0.3:30053",                    // another node's node port
	"udp 192.168.0.3:30053 from 10.0.0.2:8053", // … which somebody translates
	"udp 127.0.0.1:30053",                      // on loopback
	"udp 172.30.0.10:54",                       // no port of the Service
	"udp 192.168.98.10:54 from 10.0.0.2:8053",  // … which somebody translates
	"udp [fd00:192:168::3]:30053",              // another node's
	"udp 172.30.0.20:53 from 10.0.0.20:8053",   // another Service's
	"udp [fd00:172:30::20]:53 from [fd00:10::20]:8053",
	"udp 172.30.0.10:53 from 10.0.0.3:8053 in a zone", // of another program
}
