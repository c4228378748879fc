package conntrack

import (
	"slices"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The address plan is modeltest's: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16, our node
// 192.168.0.2, load-balancer addresses 192.168.98.0/24, external IPs 192.168.99.0/24,
// outside 203.0.113.0/24, and their IPv6 twins.

func TestWhichFlowsAreStale(t *testing.T) {
	serving := []func(*model.SliceEndpoint){modeltest.Conditions(false, true, true)}
	local := dns().Policies("Local", "Local")
	tests := []struct {
		name   string
		before []modeltest.Object
		change func(c *cluster)
		stale  []string // of all flows to pods 2 and 3, to nobody, and of others
		audit  []string // the same, by the next full look
	}{
		{
			"an endpoint is replaced",
			append(dnsSlices(nil, 2), dns()),
			func(c *cluster) { set(c, dnsSlices(nil, 3)...) },
			toDNS("udp", 2),
			toDNS("udp", 0),
		},
		{
			"it terminates, and serves",
			append(dnsSlices(nil, 2, 3), dns()),
			func(c *cluster) { set(c, dnsSlices(serving, 2, 3)...) },
			nil,
			nil,
		},
		{
			"scaled to zero",
			append(dnsSlices(nil, 2, 3), dns()),
			func(c *cluster) { set(c, dnsSlices(nil)...) },
			slices.Concat(toDNS("udp", 0), toDNS("udp", 2), toDNS("udp", 3)),
			nil,
		},
		{
			"scaled from zero",
			append(dnsSlices(nil), dns()),
			func(c *cluster) { set(c, dnsSlices(nil, 2)...) },
			slices.Concat(toDNS("udp", 0), toDNS("udp", 3)),
			nil,
		},
		{
			"the Service is new",
			dnsSlices(nil, 2),
			func(c *cluster) { set(c, dns()) },
			slices.Concat(toDNS("udp", 0), toDNS("udp", 3)),
			nil,
		},
		{
			// Untranslated flows to a former address may be those of its new owner.
			"the Service is deleted",
			append(dnsSlices(nil, 2), dns()),
			func(c *cluster) { dns().Delete(c.Builder) },
			slices.Concat(toDNS("udp", 2), toDNS("udp", 3)),
			nil,
		},
		{
			"another Service takes over all addresses",
			append(dnsSlices(nil, 2), dns().CreatedAt(1)),
			func(c *cluster) {
				dns().Delete(c.Builder)
				heir := dns().CreatedAt(2)
				heir.Name = "heir"
				set(c, heir, modeltest.NewSlice("kube-system/heir-4", "heir").UDP("dns", 8053).Ready("10.0.0.3"))
			},
			slices.Concat(toDNS("udp", 0), toDNS("udp", 2), toDNS("udp", 3)[4:]),
			nil,
		},
		{
			"an address less",
			append(dnsSlices(nil, 2), dns()),
			func(c *cluster) {
				s := dns()
				s.ExternalIPs = nil
				set(c, s)
			},
			// Of IPv6 the port alone is asked for.
			slices.Concat(toDNS("udp", 2)[2:3], toDNS("udp", 2)[6:7], toDNS("udp", 3)[2:3], toDNS("udp", 3)[4:7], toDNS("udp", 0)[4:6]),
			slices.Concat(toDNS("udp", 0)[:2], toDNS("udp", 0)[3:4], toDNS("udp", 0)[7:], toDNS("udp", 3)[:2], toDNS("udp", 3)[3:4], toDNS("udp", 3)[7:]),
		},
		{
			"both policies become Local, and the endpoint is elsewhere",
			append(dnsSlices(nil, 2), dns()),
			func(c *cluster) { set(c, local) },
			nil,
			nil,
		},
	}
	all := slices.Concat(others, toDNS("udp", 0), toDNS("udp", 2), toDNS("udp", 3))
	for _, p := range []string{"tcp", "sctp"} {
		all = slices.Concat(all, toDNS(p, 0), toDNS(p, 2), toDNS(p, 3))
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := modeltest.Moment(0)
			another := modeltest.NewService("ns/other").On("172.30.0.20", "fd00:172:30::20").UDP("dns", 53)
			c := newCluster(append(tt.before, another,
				modeltest.NewSlice("ns/other-4", "other").UDP("dns", 8053).Ready("10.0.0.20"),
				modeltest.NewSlice("ns/other-6", "other").IPv6().UDP("dns", 8053).Ready("fd00:10::20"))...)
			c.apply(now)
			c.pass(t, now)
			tt.change(c)
			c.apply(now)
			if did := c.wantPass(t, "at once", now, tt.stale, all); did != (tt.stale != nil) {
				t.Errorf("there was a pass: %v", did)
			}
			if tt.stale == nil {
				return
			}
			// A full look finds what was stale before.
			c.list()
			rest := slices.DeleteFunc(slices.Clone(all), func(f string) bool { return slices.Contains(tt.stale, f) })
			c.wantPass(t, "by an audit afterwards", now, tt.audit, rest)
		})
	}
}

// A full look at a table that others filled while this process was away.
func TestTheFirstPassFindsWhatNobodyRemembers(t *testing.T) {
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	now := modeltest.Moment(0)
	c.apply(now)
	strays := []string{
		"udp 172.30.0.99:53 from 10.0.0.2:8053",           // of a Service that was deleted
		"udp [fd00:172:30::99]:53 from [fd00:10::2]:8053", // …
		"udp 172.30.0.10:99 from 10.0.0.2:8053",           // of a port that was
		"udp [fd00:172:30::10]:99 from [fd00:10::2]:8053", // …
	}
	stay := append([]string{
		"udp 172.30.0.99:53",                    // not translated: by the next rules
		"tcp 172.30.0.99:53 from 10.0.0.2:8053", // TCP
		"udp 172.31.0.99:53 from 10.0.0.2:8053", // out of the range
	}, others[:11]...)
	all := slices.Concat(strays, stay, toDNS("udp", 0), toDNS("udp", 2), toDNS("udp", 3))
	c.wantPass(t, "at first", now, slices.Concat(toDNS("udp", 0), toDNS("udp", 3), strays), all)
	c.list()
	c.wantPass(t, "later, as another proxy may have Services in the same range", now, nil, strays)
}

// The rules were gone for a while, or came late: what began meanwhile and has no answer is to meet them.
func TestConnectionsFromWhileTheRulesWereGone(t *testing.T) {
	now := modeltest.Moment(0)
	// An endpoint that is on an external IP with its port: rules do not translate what goes there.
	self := modeltest.NewService("default/self").On("172.30.0.30").External("192.168.99.20").TCP("p", 53)
	c := newCluster(append(dnsSlices(nil, 2), dns(), self, modeltest.NewSlice("default/self-4", "self").TCP("p", 53).Ready("192.168.99.20"))...)
	gone := append(unanswered(slices.Concat(toDNS("tcp", 0), toDNS("udp", 0), toDNS("sctp", 0), toDNS("udp", 9))), toDNS("udp", 0)...)
	stay := slices.Concat(
		toDNS("tcp", 0), toDNS("sctp", 0), // another host answers, or a process of the node
		unanswered(slices.Concat(toDNS("tcp", 2), toDNS("udp", 2), toDNS("tcp", 9))), // translated
		others[:11], unanswered(others[:11]), []string{"tcp 192.168.99.20:53 unanswered"},
	)
	c.apply(now)
	c.wantPass(t, "at first", now, gone, slices.Concat(gone, stay))
	c.apply(now)
	c.wantPass(t, "without a repair", now, nil, gone)
	c.list()
	c.wantPass(t, "after a repair", now, gone, slices.Concat(gone, stay))
}

// A Service's address may be one of the node's, its port a node port's number. The address
// has precedence, as with packets.
func TestAnAddressBeforeANodePort(t *testing.T) {
	np := modeltest.NewService("ns/np").On("172.30.0.1").UDP("p", 80).NodePort(30080).CreatedAt(1)
	npPod := modeltest.NewSlice("ns/np-4", "np").UDP("p", 1).Ready("10.0.0.1")
	vip := modeltest.NewService("ns/vip").On("172.30.0.2").External("192.168.0.2").UDP("p", 30080).CreatedAt(2)
	vipPod := modeltest.NewSlice("ns/vip-4", "vip").UDP("p", 2).Ready("10.0.0.2")
	flows := []string{"udp 192.168.0.2:30080 from 10.0.0.1:1", "udp 192.168.0.2:30080 from 10.0.0.2:2"}
	now := modeltest.Moment(0)
	c := newCluster(np, npPod, vip, vipPod)
	for _, step := range []struct {
		name   string
		change func()
		want   []string
	}{
		{"at first", func() {}, flows[:1]},
		{"the node port has no endpoints", func() { npPod.Delete(c.Builder) }, flows[:1]},
		{"it has again", func() { npPod.Set(c.Builder) }, flows[:1]},
		{"the address is gone", func() { vip.Delete(c.Builder) }, flows[1:]},
		{"both are gone", func() { np.Delete(c.Builder) }, flows},
	} {
		step.change()
		c.apply(now)
		c.wantPass(t, step.name, now, step.want, flows)
	}
}

// The flows to the node port end on an address that is none of node ports any more, whatever else changes before the
// next pass. With session affinity, a client may be remembered with an endpoint that is gone (10.0.0.9).
func TestAnAddressIsNoNodePortAddressAnyMore(t *testing.T) {
	now := modeltest.Moment(0)
	elsewhere := modeltest.NewNode(modeltest.NodeName, "192.168.0.101", "fd00:192:168::101")
	gone := []string{
		"udp 192.168.0.2:30053 from 10.0.0.2:8053", "udp 192.168.0.2:30053 from 10.0.0.9:8053",
		"udp [fd00:192:168::2]:30053 from [fd00:10::2]:8053",
	}
	stay := slices.Concat(others, []string{
		"udp 192.168.0.2:30053", "tcp 192.168.0.2:30053 from 10.0.0.2:8053", "udp 192.168.0.7:30053 from 10.0.0.2:8053",
	})
	for name, change := range map[string]func(c *cluster){
		"alone":                       func(*cluster) {},
		"and the endpoint goes":       func(c *cluster) { set(c, dnsSlices(nil, 3)...) },
		"and the Service goes before": func(c *cluster) { dns().Delete(c.Builder) },
		"and it comes back and goes":  func(c *cluster) { set(c, elsewhere); c.apply(now); set(c, modeltest.OurNode()); c.apply(now) },
		"and goes while a pass is failing": func(c *cluster) {
			c.list()
			for i := range c.families {
				p := c.families[i].begin(now)
				set(c, elsewhere)
				c.apply(now)
				c.families[i].end(p, errShort)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(append(dnsSlices(nil, 2), dns().Sticky(60))...)
			c.apply(now)
			c.pass(t, now)
			change(c)
			c.apply(now)
			set(c, elsewhere)
			c.apply(now)
			c.wantPass(t, "another address", now, gone, slices.Concat(gone, stay))
			c.list()
			c.wantPass(t, "later, as it is somebody else's", now, nil, gone)
		})
	}
}

// Nothing asks again for the flows of a frontend that is gone: a pass deletes them although their endpoint leaves another
// Service while it runs.
func TestAFrontendIsGoneAndItsEndpointLeavesLater(t *testing.T) {
	now := modeltest.Moment(0)
	other := modeltest.NewSlice("ns1/other-1", "other").UDP("dns", 8053)
	c := newCluster(append(dnsSlices(nil, 2), dns(), modeltest.NewService("ns1/other").On("172.30.0.11").UDP("dns", 53),
		other.Ready("10.0.0.2"))...)
	c.apply(now)
	c.pass(t, now)
	dns().Delete(c.Builder)
	c.apply(now)
	f := &c.families[model.IPv4]
	p, flow := f.begin(now), parse(t, "udp 172.30.0.10:53 from 10.0.0.2:8053")
	set(c, other)
	c.apply(now.Add(1))
	if !f.stale(p, &flow) {
		t.Error("the flow stays")
	}
}

// A pass that lists the whole table does not forget a former address while there is something to ask about node ports.
func TestAServiceGoesWhileTheAddressBeforeIsLookedFor(t *testing.T) {
	now := modeltest.Moment(0)
	c := newCluster(append(dnsSlices(nil, 2), dns())...)
	c.apply(now)
	c.pass(t, now)
	set(c, modeltest.NewNode(modeltest.NodeName, "192.168.0.101"))
	c.apply(now)
	f := &c.families[model.IPv4]
	p := f.begin(now)
	dns().Delete(c.Builder)
	c.apply(now.Add(1))
	f.end(p, nil)
	gone := []string{"udp 192.168.0.2:30053 from 10.0.0.2:8053"}
	c.wantPass(t, "the Service is gone", now.Add(1), gone, gone)
}
