package history

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Pods are 10.0.0.2 and 10.0.0.3, the cluster IP is 172.30.0.41, the client is 203.0.113.9.

var (
	pod2, pod3 = netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.3:8080")
	outside    = netip.MustParseAddr("203.0.113.9")
	node       = netip.MustParseAddr(modeltest.NodeIP4)
)

const ms = time.Millisecond

// world returns a snapshot of a Service and its endpoints. Clients outside are masqueraded.
func world(service modeltest.Service, endpoints ...string) *model.Snapshot {
	c := modeltest.Config()
	c.LocalPods.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	slice := modeltest.NewSlice("ns1/web-1", "web").TCP("tcp", 8080).UDP("udp", 8080).Local(endpoints...)
	return modeltest.Snapshot(c, modeltest.OurNode(), service, slice)
}

func web() modeltest.Service {
	return modeltest.NewService("ns1/web").On("172.30.0.41").TCP("tcp", 80).UDP("udp", 80)
}

// swap is a history in which pod 3 takes the place of pod 2 by an Apply from 100 to 110 ms, and is alone from then on.
func swap(b Backend, s modeltest.Service) *History {
	h := &History{Backend: b, Node: [2]netip.Addr{node, netip.MustParseAddr(modeltest.NodeIP6)}}
	h.apply(world(s, "10.0.0.2"), 0, 10*ms)
	h.apply(world(s, "10.0.0.3"), 100*ms, 110*ms)
	return h
}

func (h *History) apply(s *model.Snapshot, begin, end time.Duration) {
	h.Begin(s, begin)
	h.End(end, nil)
	h.Told(end + ms)
}

// op is an operation of the client, over TCP.
func op(start, end time.Duration, r Result) *Operation {
	return &Operation{
		Connection: model.Connection{
			Source: outside, SourcePort: 40000, Interface: "eth0", Dest: netip.MustParseAddrPort("172.30.0.41:80"), Protocol: model.TCP,
		},
		Start: start, End: end, Result: r,
	}
}

// by is op with an answer of an endpoint.
func by(start, end time.Duration, endpoint netip.AddrPort, seen netip.Addr) *Operation {
	o := op(start, end, Answered)
	o.Endpoint, o.Seen = endpoint, seen
	return o
}

func (o *Operation) udp() *Operation { o.Protocol = model.UDP; return o }

// after makes it a later datagram of a flow.
func (o *Operation) after(before *Operation) *Operation { o.Before = before; return o.udp() }

// to gives it another destination.
func (o *Operation) to(dest string) *Operation { o.Dest = netip.MustParseAddrPort(dest); return o }

func (o *Operation) from(source netip.Addr) *Operation { o.Source = source; return o }

func TestRules(t *testing.T) {
	first := func() *Operation { return by(50*ms, 51*ms, pod2, node).udp() }
	nft := Backend{Hashes: true, Purge: time.Second}
	noted := func() *Operation { return by(99*ms, 101*ms, pod2, node) }
	sticky := func() *History { return swap(nft, web().Sticky(60)) }
	after := []pass{{120 * ms, 130 * ms}} // the Apply
	plain := func() *History { return swap(nft, web()) }
	for name, c := range map[string]struct {
		history func() *History
		op      *Operation
		besides []*Operation
		passes  []pass
		want    Rule
	}{
		"the endpoint of the only snapshot":                    {plain, by(50*ms, 60*ms, pod2, node), nil, nil, Decided},
		"the endpoint of the next one":                         {plain, by(50*ms, 60*ms, pod3, node), nil, nil, None},
		"an endpoint that no snapshot has":                     {plain, by(95*ms, 120*ms, netip.MustParseAddrPort("10.0.0.4:8080"), node), nil, nil, None},
		"another port of the endpoint":                         {plain, by(50*ms, 60*ms, netip.MustParseAddrPort("10.0.0.2:8081"), node), nil, nil, None},
		"the endpoint saw the client":                          {plain, by(50*ms, 60*ms, pod2, outside), nil, nil, None},
		"the endpoint saw the node, and not the pod":           {plain, by(50*ms, 60*ms, pod2, node).from(pod3.Addr()), nil, nil, None},
		"the endpoint saw the pod":                             {plain, by(50*ms, 60*ms, pod2, pod3.Addr()).from(pod3.Addr()), nil, nil, Decided},
		"old, in the middle of the Apply":                      {plain, by(105*ms, 106*ms, pod2, node), nil, nil, Decided},
		"new, in the middle of the Apply":                      {plain, by(105*ms, 106*ms, pod3, node), nil, nil, Decided},
		"old, sent before the end of the Apply":                {plain, by(109*ms, 500*ms, pod2, node), nil, nil, Decided},
		"old, sent after the end of the Apply":                 {plain, by(111*ms, 112*ms, pod2, node), nil, nil, None},
		"new, answered before the begin of the Apply":          {plain, by(50*ms, 99*ms, pod3, node), nil, nil, None},
		"refused, and no snapshot rejects":                     {plain, op(50*ms, 60*ms, Refused), nil, nil, None},
		"refused on a port that the Service lacks":             {plain, op(50*ms, 60*ms, Refused).to("172.30.0.41:81"), nil, nil, Decided},
		"silent on a port that the Service lacks":              {plain, op(50*ms, 60*ms, Silent).to("172.30.0.41:81"), nil, nil, None},
		"silent, and no snapshot drops":                        {plain, op(50*ms, 5*time.Second, Silent), nil, nil, None},
		"silent, and nobody has the address":                   {plain, op(50*ms, 60*ms, Silent).to("192.168.99.1:80"), nil, nil, Decided},
		"refused, and nobody has the address":                  {plain, op(50*ms, 60*ms, Refused).to("192.168.99.1:80"), nil, nil, Decided},
		"a flow stays where its endpoint serves":               {drains, by(200*ms, 201*ms, pod2, node).after(first()), nil, after, Flow},
		"a new datagram there":                                 {drains, by(200*ms, 201*ms, pod2, node).udp(), nil, nil, None},
		"a flow stays until the pass":                          {plain, by(125*ms, 126*ms, pod2, node).after(first()), nil, after, Flow},
		"a flow stays after the pass":                          {plain, by(131*ms, 132*ms, pod2, node).after(first()), nil, after, None},
		"a flow stays after a pass that had not been told":     {plain, by(131*ms, 132*ms, pod2, node).after(first()), nil, []pass{{110 * ms, 130 * ms}}, Flow},
		"a flow goes to another endpoint, unasked":             {plain, by(60*ms, 61*ms, pod3, node).after(first()), nil, nil, None},
		"a flow has another source, unasked":                   {plain, by(60*ms, 61*ms, pod2, outside).after(first()), nil, nil, None},
		"an answer is lost with its flow":                      {plain, op(105*ms, 5*time.Second, Silent).udp(), nil, after, Swept},
		"an answer is lost without a pass":                     {plain, op(105*ms, 5*time.Second, Silent).udp(), nil, nil, None},
		"an answer is lost, and no endpoint has gone":          {plain, op(115*ms, 5*time.Second, Silent).udp(), nil, after, None},
		"a connection is lost with flows of others":            {plain, op(105*ms, 5*time.Second, Silent), nil, after, None},
		"back at an endpoint that is gone":                     {sticky, by(200*ms, 201*ms, pod2, node).udp(), []*Operation{noted().udp()}, nil, None},
		"lost on its return":                                   {sticky, op(200*ms, 5*time.Second, Silent).udp(), []*Operation{noted().udp()}, nil, Returned},
		"another client was noted":                             {sticky, op(200*ms, 5*time.Second, Silent).udp(), []*Operation{noted().udp().from(outside.Next())}, nil, None},
		"noted over TCP":                                       {sticky, op(200*ms, 5*time.Second, Silent).udp(), []*Operation{noted()}, nil, None},
		"noted, and lost over TCP":                             {sticky, op(200*ms, 5*time.Second, Silent), []*Operation{noted()}, nil, None},
		"lost after the purge":                                 {sticky, op(1200*ms, 5*time.Second, Silent).udp(), []*Operation{noted().udp()}, nil, None},
		"lost, and nobody remembers":                           {plain, op(200*ms, 5*time.Second, Silent).udp(), []*Operation{noted().udp()}, nil, None},
		"a flow's answer is lost long after the Apply":         {plain, op(200*ms, 5*time.Second, Silent).after(first()), nil, []pass{{210 * ms, 230 * ms}}, Swept},
		"a flow's answer is lost where the endpoint serves":    {drains, op(200*ms, 5*time.Second, Silent).after(first()), nil, []pass{{210 * ms, 230 * ms}}, None},
		"an answer is lost with a flow to a newer endpoint":    {back, op(215*ms, 5*time.Second, Silent).udp(), nil, []pass{{150 * ms, 230 * ms}}, None},
		"an answer is lost, and the endpoint is back":          {back, op(105*ms, 5*time.Second, Silent).udp(), nil, []pass{{150 * ms, 160 * ms}}, Swept},
		"an endpoint of before, the source of after":           {masquerades, by(105*ms, 106*ms, pod2, outside), nil, nil, Hooks},
		"an endpoint of after, the source of before":           {masquerades, by(105*ms, 106*ms, pod3, node), nil, nil, Hooks},
		"an endpoint of after, the source of a drop":           {admits(Backend{}), by(105*ms, 106*ms, pod2, node).to("192.168.99.41:80"), nil, nil, Hooks},
		"an endpoint of after, the source of a drop, later":    {admits(Backend{}), by(111*ms, 112*ms, pod2, node).to("192.168.99.41:80"), nil, nil, None},
		"the source of a drop, and there are tables":           {admits(Backend{Tables: true}), by(105*ms, 106*ms, pod2, node).to("192.168.99.41:80"), nil, nil, None},
		"the source of before, long after the Apply":           {masquerades, by(111*ms, 112*ms, pod3, node), nil, nil, None},
		"silent while the machine stalls":                      {stalls, op(300*ms, 5*time.Second, Silent), nil, nil, Stalled},
		"silent after the machine stalled":                     {stalls, op(500*ms, 5*time.Second, Silent), nil, nil, None},
		"answered by another while the machine stalls":         {stalls, by(300*ms, 350*ms, pod2, node), nil, nil, None},
		"silent between two tables":                            {tables(true), op(105*ms, 106*ms, Silent), nil, nil, Parts},
		"silent between two tables, long after":                {tables(true), op(115*ms, 116*ms, Silent), nil, nil, None},
		"silent, and there is one table":                       {tables(false), op(105*ms, 106*ms, Silent), nil, nil, None},
		"refused where the next snapshot rejects":              {tables(false), op(105*ms, 106*ms, Refused), nil, nil, Decided},
		"refused too early":                                    {tables(false), op(98*ms, 99*ms, Refused), nil, nil, None},
		"silent, and the Service goes half a second later":     {goes(500 * ms), op(50*ms, 5*time.Second, Silent), nil, nil, Decided},
		"silent, and the Service goes two seconds later":       {goes(2 * time.Second), op(50*ms, 5*time.Second, Silent), nil, nil, None},
		"an answer is lost with a pass that knew the endpoint": {plain, op(105*ms, 5*time.Second, Silent).udp(), nil, []pass{{50 * ms, 230 * ms}}, None},
		"an endpoint of before, the source of nobody":          {masquerades, by(105*ms, 106*ms, pod2, pod3.Addr()), nil, nil, None},
		"an endpoint of before, no masquerade by a rejection":  {tables(false), by(105*ms, 106*ms, pod2, outside), nil, nil, Hooks},
		"an endpoint of before, a masquerade by a rejection":   {tables(false), by(105*ms, 106*ms, pod2, node).from(pod3.Addr()), nil, nil, None},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.history()
			for _, p := range c.passes {
				h.Passed(model.IPv4, p.begin, p.end)
			}
			for _, o := range c.besides {
				h.Add(o)
			}
			h.Add(c.op)
			if got := h.rule(c.op); got != c.want {
				t.Errorf("want %q, got %q: %s", c.want, got, h.describe(c.op))
			}
		})
	}
}

// drains is a history in which pod 2 begins to terminate, and no new connection is for it any more.
func drains() *History {
	h := swap(Backend{}, web())
	h.applied[1].snapshot = modeltest.Snapshot(model.Config{NodeName: modeltest.NodeName}, modeltest.OurNode(), web(),
		modeltest.NewSlice("ns1/web-1", "web").UDP("udp", 8080).Endpoint("10.0.0.2", modeltest.Conditions(false, true, true)).Local("10.0.0.3"))
	return h
}

// back is swap with pod 2 back in the place of pod 3.
func back() *History {
	h := swap(Backend{}, web())
	h.apply(world(web(), "10.0.0.2"), 200*ms, 210*ms)
	return h
}

// masquerades is swap where pods can't be told from then on, so that nobody is masqueraded.
func masquerades() *History {
	h := swap(Backend{}, web())
	h.applied[1].snapshot = modeltest.Snapshot(modeltest.Config(), modeltest.OurNode(), web(),
		modeltest.NewSlice("ns1/web-1", "web").TCP("tcp", 8080).Local("10.0.0.3"))
	return h
}

// admits is a Service that drops the client and, from 100 to 110 ms on, has it reach pod 2 with its own source.
func admits(b Backend) func() *History {
	return func() *History {
		h := swap(b, web())
		balanced := web().LoadBalancer("192.168.99.41")
		h.applied[0].snapshot = world(balanced.Ranges("192.0.2.0/24"), "10.0.0.2")
		h.applied[1].snapshot = world(balanced.Policies("Cluster", "Local"), "10.0.0.2")
		return h
	}
}

// goes is swap with a third snapshot, of no Service.
func goes(at time.Duration) func() *History {
	return func() *History {
		h := swap(Backend{}, web())
		h.apply(modeltest.Snapshot(modeltest.Config(), modeltest.OurNode()), at, at+10*ms)
		return h
	}
}

// stalls is swap on a machine that stalls from 200 to 450 ms.
func stalls() *History {
	h := swap(Backend{}, web())
	h.Witness(200*ms, 450*ms)
	h.Witness(460*ms, 600*ms) // no stall
	return h
}

// tables is a history in which all endpoints go.
func tables(several bool) func() *History {
	return func() *History {
		h := &History{Backend: Backend{Tables: several}, Node: [2]netip.Addr{node}}
		h.apply(world(web(), "10.0.0.2"), 0, 10*ms)
		h.apply(world(web()), 100*ms, 110*ms)
		return h
	}
}

// A table has one target for a client.
func TestTheTableChooses(t *testing.T) {
	for _, algorithm := range []string{"maglev", "maglev-port", "random"} {
		h := &History{Backend: Backend{Hashes: true}, Node: [2]netip.Addr{node}}
		h.apply(world(web().Algorithm(algorithm), "10.0.0.2", "10.0.0.3"), 0, 10*ms)
		right := 0
		for _, endpoint := range []netip.AddrPort{pod2, pod3} {
			if h.rule(by(20*ms, 21*ms, endpoint, node)) == Decided {
				right++
			}
		}
		if want := map[bool]int{true: 2, false: 1}[algorithm == "random"]; right != want {
			t.Errorf("%s: want %d endpoints to be right, got %d", algorithm, want, right)
		}
	}
}

// The snapshot before one whose Apply failed stays in force until another one succeeds.
func TestAnApplyFails(t *testing.T) {
	h := swap(Backend{}, web())
	h.applied[1].ended = false
	if got := h.rule(by(300*ms, 301*ms, pod2, node)); got != Decided {
		t.Errorf("after a failure, the endpoint of before: %v", got)
	}
	h.apply(world(web(), "10.0.0.3"), 200*ms, 210*ms)
	if got := h.rule(by(300*ms, 301*ms, pod2, node)); got != None {
		t.Errorf("after the Apply that followed it: %v", got)
	}
}

func TestReport(t *testing.T) {
	h := swap(Backend{}, web())
	for _, o := range []*Operation{
		by(50*ms, 60*ms, pod2, node), by(105*ms, 106*ms, pod3, node), by(111*ms, 112*ms, pod2, node), op(50*ms, 60*ms, Silent),
	} {
		h.Add(o)
	}
	r := h.Check()
	r.Add(h.Check())
	if r.Operations != 8 || r.Middle != 2 || r.Contradictions != 4 || r.Lost != 2 || r.Count(Answered, Decided) != 4 || r.Count(Answered, None) != 2 {
		t.Errorf("got %+v", r)
	}
	for _, want := range []string{
		"TCP from outside 203.0.113.9:40000 to 172.30.0.41:80, 111ms to 112ms: answered by 10.0.0.2:8080, which saw 192.168.0.2",
		"*1 to 1 (Apply from 100ms to 110ms, the last one's to 110ms): forwarded", "10.0.0.3:8080 sees 192.168.0.2",
		" 0 to 0 (Apply from 0s to 10ms,",
	} {
		if !strings.Contains(strings.ToUpper(r.Texts[0]), strings.ToUpper(want)) {
			t.Errorf("want %q in:\n%s", want, r.Texts[0])
		}
	}
	if table := r.String(); !strings.Contains(table, "8 operations, 2 of them during an Apply") || !strings.Contains(table, "CONTRADICTION, silent") {
		t.Errorf("got the table\n%s", table)
	}
}
