package trace

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/nft/tracer"
)

// Address plan: client 203.0.113.9, cluster IP 172.30.0.10, endpoint 10.0.0.3, node 192.168.0.2.
var (
	client   = netip.MustParseAddrPort("203.0.113.9:40000")
	vip      = netip.MustParseAddrPort("172.30.0.10:80")
	endpoint = netip.MustParseAddrPort("10.0.0.3:8080")
	node     = netip.MustParseAddrPort("192.168.0.2:40001")
)

const table = "vmapd-trace-1"

// recorder makes events as the kernel sends them for one packet.
type recorder struct {
	id     uint32
	packet tracer.Packet
	in     uint32
	out    uint32
	events []tracer.Event
}

// record begins the way of a packet at a hook, where the rule of a chain of ours marks it.
func record(id uint32, chain string, p tracer.Packet) *recorder {
	r := &recorder{id: id, packet: p, in: 2}
	at := others.Place{Family: "ip", Table: table, Chain: chain}
	r.rule(at, 1, tracer.Continue, "")
	return r.end(at)
}

func (r *recorder) add(e tracer.Event) *recorder {
	e.ID = r.id
	r.events = append(r.events, e)
	return r
}

// rule matches. The first message of a base chain has the packet.
func (r *recorder) rule(at others.Place, handle uint64, c tracer.Code, target string) *recorder {
	p := r.packet
	return r.add(tracer.Event{Kind: tracer.Rule, Place: at, Rule: handle, Code: c, Target: target, Packet: &p, In: r.in, Out: r.out})
}

// more matches in a chain to which the base chain led.
func (r *recorder) more(at others.Place, handle uint64, c tracer.Code, target string) *recorder {
	return r.add(tracer.Event{Kind: tracer.Rule, Place: at, Rule: handle, Code: c, Target: target})
}

// end ends a base chain as its policy says.
func (r *recorder) end(at others.Place) *recorder {
	return r.add(tracer.Event{Kind: tracer.Policy, Place: at, Code: tracer.Accept})
}

// pass passes chains of ours.
func (r *recorder) pass(chains ...string) *recorder {
	for _, c := range chains {
		p, at := r.packet, others.Place{Family: "ip", Table: table, Chain: c}
		r.add(tracer.Event{Kind: tracer.Rule, Place: at, Code: tracer.Continue, Packet: &p, In: r.in, Out: r.out}).end(at)
	}
	return r
}

func place(table, chain string) others.Place {
	return others.Place{Family: "ip", Table: table, Chain: chain}
}

// forwarded is a packet that vmapd sends to the endpoint, up to the hook forward.
func toForward() *recorder {
	r := record(7, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip, Flags: tracer.FlagSYN})
	r.rule(place("vmapd", "prerouting"), 1, tracer.Jump, "services")
	r.more(place("vmapd", "services"), 5, tracer.Goto, "endpoints-1-to-1")
	r.more(place("vmapd", "endpoints-1-to-1"), 6, tracer.Accept, "")
	r.packet.Dest = endpoint
	r.pass("prerouting-end")
	r.out = 3
	return r
}

func whole() *recorder {
	r := toForward().pass("forward-begin", "forward-end", "postrouting-begin")
	r.rule(place("vmapd", "postrouting"), 9, tracer.Accept, "")
	r.packet.Source = node
	return r.pass("postrouting-end")
}

func answerOf(flags uint8) *recorder {
	r := record(8, "prerouting-answers", tracer.Packet{Protocol: model.TCP, Source: endpoint, Dest: node, Flags: flags})
	r.in = 3
	r.packet.Dest = client
	r.pass("prerouting-end")
	r.out = 2
	return r
}

const accepts = tracer.FlagSYN | tracer.FlagACK

// back is an answer that comes to the client.
func back(flags uint8) *recorder {
	return answerOf(flags).pass("forward-begin", "forward-end", "postrouting-begin", "postrouting-end")
}

// collected has the events of a tracer's packets.
func collected(events ...[]tracer.Event) Collector {
	c := Collector{Table: table}
	for _, e := range slices.Concat(events...) {
		c.Add(e)
	}
	return c
}

// interfaces are the names of interfaces.
var interfaces = map[uint32]string{2: "eth0", 3: "veth2"}

// line returns the rule of an event.
func line(e tracer.Event) others.Line {
	for _, l := range []others.Line{
		{Place: place("vmapd", "services"), Handle: 5, Position: 5},
		{Place: place("vmapd", "services"), Handle: 4, Position: 1, Text: "ip daddr @firewall-ips ip saddr != @source-ranges-tcp drop"},
		{Place: place("vmapd", "endpoints-1-to-1"), Handle: 6, Position: 1, DNAT: true},
		{Place: place("vmapd", "reject-chain"), Handle: 7, Position: 1, Text: "meta l4proto tcp reject with tcp reset", Rejects: true},
		{Place: place("filter", "FORWARD"), Handle: 3, Position: 2, Decides: true, Text: "tcp dport 8080 drop comment \"no \x1b[31mweb\""},
		{Place: place("filter", "FORWARD"), Handle: 4, Position: 3, Decides: true, Text: "handle 4"},
	} {
		if l.Place == e.Place && l.Handle == e.Rule {
			return l
		}
	}
	return others.Line{Place: e.Place, Handle: e.Rule}
}

func input(first, answer *recorder) Input {
	in := Input{First: follow(first.events, line, interfaces), Waited: 3 * time.Second}
	if answer != nil {
		in.Answer = follow(answer.events, line, interfaces)
	}
	return in
}

func TestStories(t *testing.T) {
	forward := place("filter", "FORWARD")
	connected := func(in *Input) { in.Dialed = succeeded }
	unreachable := record(8, "prerouting-answers", tracer.Packet{Protocol: 1, Source: endpoint, Dest: node, Type: 3, Code: 3})
	for _, tt := range []struct {
		name          string
		first, answer *recorder
		change        func(*Input)
		verdict       Verdict
		want          string
	}{
		{"accepted", whole(), back(accepts), nil, Forwarded, "forwarded to 10.0.0.3:8080 by veth2, which accepted it."},
		{"reset", whole(), back(tracer.FlagRST | tracer.FlagACK), nil, Forwarded, "forwarded to 10.0.0.3:8080 by veth2, which refused it with a TCP reset: nothing listens on that port there."},
		{"unreachable", whole(), unreachable.pass("prerouting-end", "forward-begin", "forward-end", "postrouting-begin", "postrouting-end"), nil, Forwarded, "forwarded to 10.0.0.3:8080 by veth2; 10.0.0.3 answered with an ICMP error: port unreachable."},
		{"silent", whole(), nil, nil, Forwarded, "forwarded to 10.0.0.3:8080 by veth2, which did not answer within 3s."},
		{"answered, says the connection", whole(), nil, connected, Forwarded, "forwarded to 10.0.0.3:8080 by veth2, which answered."},
		{
			"the answer is dropped", whole(), answerOf(accepts).pass("forward-begin").rule(forward, 3, tracer.Drop, ""), nil, Forwarded,
			`forwarded to 10.0.0.3:8080 by veth2, which accepted it. But the answer was dropped on the return path, by table ip filter, chain FORWARD, rule 2 (tcp dport 8080 drop comment "no \x1b[31mweb"), which is not vmapd's.`,
		},
		{"delivered", toForward().pass("input-begin", "input-end"), nil, nil, Delivered, "delivered to 10.0.0.3:8080 on this node itself, which did not answer within 3s."},
		{"dropped by another rule", toForward().pass("forward-begin").rule(forward, 3, tracer.Drop, ""), nil, nil, Dropped, `dropped by table ip filter, chain FORWARD, rule 2 (tcp dport 8080 drop comment "no \x1b[31mweb"), which is not vmapd's.`},
		{"a rule that has gone", toForward().pass("forward-begin").rule(forward, 99, tracer.Drop, ""), nil, nil, Dropped, `dropped by table ip filter, chain FORWARD, by the rule with handle 99, which is not vmapd's.`},
		{
			"dropped by a policy", toForward().pass("forward-begin").rule(forward, 0, tracer.Continue, "").add(tracer.Event{Kind: tracer.Policy, Place: forward, Code: tracer.Drop}), nil, nil,
			Dropped, "dropped by table ip filter, chain FORWARD, by its policy, which is not vmapd's.",
		},
		{"taken", toForward().pass("forward-begin").rule(forward, 3, tracer.Queue, ""), nil, nil, Taken, `given to another program in table ip filter, chain FORWARD, rule 2 (tcp dport 8080 drop comment "no \x1b[31mweb"), which is not vmapd's.`},
		{"no route", toForward(), nil, func(in *Input) { in.Route = "no route" }, NoRoute, "dropped, because the kernel does not route it to 10.0.0.3: no route."},
		{"lost by routing", toForward(), nil, nil, Lost, "lost after prerouting: no rule of nftables was seen to drop the packet."},
		{"answered, although its way was not seen", toForward().pass("forward-begin"), nil, connected, Forwarded, "forwarded to 10.0.0.3:8080 by veth2, which answered."},
		{"answered, although only its beginning was seen", record(7, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip}), nil, connected, Forwarded, "forwarded to 172.30.0.10:80, which answered."},
		{"lost in a hook", toForward().pass("forward-begin"), nil, nil, Lost, "lost in forward: no rule of nftables was seen to drop the packet."},
		{
			"source range", record(7, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip}).
				rule(place("vmapd", "prerouting"), 1, tracer.Jump, "services").more(place("vmapd", "services"), 4, tracer.Drop, ""), nil, nil,
			Dropped, "dropped by table ip vmapd, chain services, rule 1 (ip daddr @firewall-ips ip saddr != @source-ranges-tcp drop), which is vmapd's.",
		},
		{
			"no endpoint", record(7, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip}).
				rule(place("vmapd", "prerouting"), 1, tracer.Jump, "services").more(place("vmapd", "services"), 5, tracer.Goto, "reject-chain").
				more(place("vmapd", "reject-chain"), 7, tracer.Drop, ""), nil, nil,
			Rejected, "rejected by table ip vmapd, chain reject-chain, rule 1 (meta l4proto tcp reject with tcp reset), which is vmapd's.",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := input(tt.first, tt.answer)
			if tt.change != nil {
				tt.change(&in)
			}
			s := NewStory(in)
			if s.Verdict != tt.verdict || model.OneLine(s.Conclusion) != tt.want {
				t.Errorf("want %s: %s\n got %s: %s", tt.verdict, tt.want, s.Verdict, s.Conclusion)
			}
			if s.Source != client || s.Destination != vip {
				t.Errorf("want the addresses that the client used, got %v → %v", s.Source, s.Destination)
			}
			if out := text(t, s); strings.Contains(out, "\x1b") {
				t.Errorf("the text has the control characters of a comment:\n%q", out)
			}
		})
	}
}

func text(t *testing.T, s Story) string {
	t.Helper()
	var out strings.Builder
	if err := report.Print(&out, report.InText, nil, func(t *report.Text) { s.Write(t) }); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheText(t *testing.T) {
	in := input(whole(), back(accepts))
	in.Expected = decision("forwarded", "10.0.0.2:8080", "10.0.0.3:8080")
	in.Expected.Conclusion = "forwarded to one of two"
	s := NewStory(in)
	const want = `=> forwarded to 10.0.0.3:8080 by veth2, which accepted it.
This is what vmapd expects.
note: Not tried: 1 more endpoint of the Service (--each).

from 203.0.113.9:40000
to   172.30.0.10:80/tcp
1. prerouting, from eth0
   Rules of vmapd matched (-v).
   The destination is 10.0.0.3:8080 now.
2. forward, from eth0, to veth2
3. postrouting, from eth0, to veth2
   Rules of vmapd matched (-v).
   The source is 192.168.0.2:40001 now.
4. The answer came from 10.0.0.3:8080 (accepted).
   It left by eth0.
`
	if out := text(t, s); out != want {
		t.Errorf("want:\n%s\ngot:\n%s", want, out)
	}
}

// Where nft lists no rules, they have their handles, with the verdicts of the trace. A note says why.
func TestRulesWithoutTexts(t *testing.T) {
	in := input(toForward().pass("forward-begin").rule(place("filter", "FORWARD"), 4, tracer.Drop, ""), nil)
	in.NoText = `exec: "nft": executable file not found in $PATH`
	out := text(t, NewStory(in))
	for _, want := range []string{
		"=> dropped by table ip filter, chain FORWARD, rule 3 (handle 4), which is not\n   vmapd's.\n",
		"   table ip filter, chain FORWARD, rule 3 (handle 4) => drop\n",
		"note: Some rules are named by their handles, because nft does not list them:\n  exec: \"nft\": executable file not found in $PATH.\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// decision is one of vmapd's.
func decision(verdict report.Outcome, endpoints ...string) *explain.Explanation {
	e := &explain.Explanation{Verdict: verdict}
	for _, a := range endpoints {
		e.Used = append(e.Used, explain.Endpoint{Address: netip.MustParseAddrPort(a), Pod: "default/web-1"})
	}
	return e
}

// The verdict does not contradict the end of the connection that vmapd made itself.
func TestAnAnswerThatTheClientHasNotGot(t *testing.T) {
	in := input(whole(), back(accepts))
	in.Dialed = "no answer in time"
	const want = "forwarded to 10.0.0.3:8080 by veth2, which accepted it. But the answer was lost after this node's rules, after it left by eth0."
	if s := NewStory(in); s.Conclusion != want || s.Outcome() != "dropped" || s.Answered() {
		t.Errorf("%s; answered: %v; %s", s.Outcome(), s.Answered(), s.Conclusion)
	}
}

// Only packets that our rules have marked belong to a trace.
func TestEventsOfOthersAreNotTaken(t *testing.T) {
	first := whole()
	answer := record(18, "prerouting-answers", tracer.Packet{Protocol: model.TCP, Source: endpoint, Dest: node, Flags: tracer.FlagRST})
	stranger := record(99, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: node, Dest: client})
	for i := range stranger.events { // of another tracer
		stranger.events[i].Place.Table = "vmapd-trace-2"
	}
	c := Collector{Table: table}
	for _, e := range slices.Concat(stranger.events, first.events, answer.events) {
		if complete, _ := c.complete(); complete {
			t.Errorf("complete before %+v", e)
		}
		c.Add(e)
	}
	if len(c.First) != len(first.events) || len(c.Answer) != len(answer.events) {
		t.Errorf("want %d and %d events, got %d and %d", len(first.events), len(answer.events), len(c.First), len(c.Answer))
	}
	for _, e := range answer.pass("forward-begin", "forward-end", "postrouting-end").events[len(answer.events)-6:] {
		c.Add(e)
	}
	if complete, _ := c.complete(); !complete {
		t.Error("not complete behind the answer's last hook")
	}
}

// Where answers are found by the client's port alone, one of another server's is not taken.
func TestAnswersOfOtherServersAreNotTaken(t *testing.T) {
	other := tracer.Packet{Protocol: model.TCP, Source: node, Dest: client, Flags: tracer.FlagRST}
	ours := other
	ours.Source = endpoint
	at := "prerouting-early-answers"
	c := collected(whole().events, record(20, at, other).events, record(21, at, ours).events)
	if len(c.Answer) == 0 || c.Answer[0].Packet.Source != endpoint {
		t.Errorf("want the answer of %v, got %v", endpoint, c.Answer)
	}
}

// A packet to an address of the node itself leaves by lo, and comes back with another ID.
func TestLoopbackIsOneWay(t *testing.T) {
	out := record(7, "output-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip, Flags: tracer.FlagSYN})
	out.in, out.out = 0, 1
	out.pass("output-end", "postrouting-begin", "postrouting-end")
	in := &recorder{id: 8, packet: out.packet, in: 1}
	in.pass("prerouting-begin", "prerouting-end", "input-begin")
	c := collected(out.events)
	if p := follow(c.First, line, interfaces); p.complete() {
		t.Error("a packet on loopback has arrived nowhere yet")
	}
	c = collected(out.events, in.pass("input-end").events)
	if p := follow(c.First, line, interfaces); !p.complete() {
		t.Error("the packet has not arrived")
	}
	if s := NewStory(input(&recorder{events: c.First}, nil)); s.Verdict != Delivered || len(s.Hooks) != 4 {
		t.Errorf("want it delivered behind 4 hooks, got %s behind %d", s.Verdict, len(s.Hooks))
	}
}

func TestNothingSeenIsNoPanic(t *testing.T) {
	if s := NewStory(Input{}); s.Verdict != "" || s.Conclusion == "" {
		t.Errorf("got %+v", s)
	}
}

// The outcome is that for the client: a connection that its endpoint refuses is refused, too. The last line compares it
// with what vmapd expects.
func TestOutcomes(t *testing.T) {
	forward := place("filter", "FORWARD")
	direct := record(7, "prerouting-begin", tracer.Packet{Protocol: model.TCP, Source: client, Dest: vip, Flags: tracer.FlagSYN})
	dropped := toForward().pass("forward-begin").rule(forward, 3, tracer.Drop, "")
	datagram := whole()
	const expected, elsewhere = "This is what vmapd expects.", "vmapd expected this; the failure is elsewhere."
	const mismatch = "MISMATCH: vmapd expects: forwarded"
	for _, e := range datagram.events {
		if e.Packet != nil {
			e.Packet.Protocol = model.UDP
		}
	}
	for _, tt := range []struct {
		name          string
		first, answer *recorder
		want          report.Outcome
		last          string               // line
		expected      *explain.Explanation // nil: forwarded to the endpoint
	}{
		{"accepted", whole(), back(accepts), "forwarded", expected, nil},
		{"reset", whole(), back(tracer.FlagRST | tracer.FlagACK), "rejected", elsewhere, nil},
		{"silent", whole(), nil, "dropped", elsewhere, nil},
		{"silent over UDP", datagram, nil, "forwarded", elsewhere, nil},
		{"the answer is dropped", whole(), answerOf(accepts).pass("forward-begin").rule(forward, 3, tracer.Drop, ""), "dropped", "   -> change that rule", nil},
		{"vmapd drops the answer", whole(), answerOf(accepts).pass("forward-begin").rule(place("vmapd", "forward"), 3, tracer.Drop, ""), "dropped", mismatch, nil},
		{"dropped", dropped, nil, "dropped", mismatch, nil},
		{"not translated", direct.pass("prerouting-end", "input-begin", "input-end"), back(accepts), "not a Service", mismatch, nil},
		{"another endpoint", whole(), back(accepts), "forwarded", mismatch, decision("forwarded", "10.0.0.9:8080")},
		{"dropped, not by vmapd", dropped, nil, "dropped", "MISMATCH: vmapd expects: dropped", decision("dropped")},
		{"forwarded instead of refused", whole(), back(accepts), "forwarded", "MISMATCH: vmapd expects: rejected", decision("rejected")},
		{"translated, but not a Service", whole(), back(accepts), "forwarded", "MISMATCH: vmapd expects: not a Service", decision("not a Service")},
	} {
		in := input(tt.first, tt.answer)
		in.Expected = cmp.Or(tt.expected, decision("forwarded", endpoint.String()))
		in.Expected.Conclusion = string(in.Expected.Verdict)
		s := NewStory(in)
		if got := s.Outcome(); got != tt.want {
			t.Errorf("%s: want %s, got %s: %s", tt.name, tt.want, got, s.Conclusion)
		}
		_, last, _ := strings.Cut(text(t, s), "\n")
		if verdict, _, _ := strings.Cut(last, "\n\n"); !strings.Contains("\n"+verdict+"\n", "\n"+tt.last) {
			t.Errorf("%s: want %q below the verdict of\n%s", tt.name, tt.last, text(t, s))
		}
		if want := map[bool]string{true: "default/web-1"}[s.Endpoint == endpoint]; s.Pod != want && tt.expected == nil {
			t.Errorf("%s: want the pod %q, got %q", tt.name, want, s.Pod)
		}
	}
}
