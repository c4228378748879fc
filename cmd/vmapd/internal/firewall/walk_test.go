package firewall

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	endpoint = netip.MustParseAddr("10.0.0.2")
	packet   = Packet{ // forwarded to an endpoint; the client is not known
		Dst: endpoint, DstPort: 8080, Proto: unix.IPPROTO_TCP, In: "eth0", Out: "pods0", State: StateNew, Translated: true,
		Orig: netip.MustParseAddrPort("192.168.0.2:30080"), Local: No,
	}
)

func to(addr string, bits int) Cond {
	p := netip.PrefixFrom(netip.MustParseAddr(addr), bits).Masked()
	mask := make([]byte, 4)
	binary.BigEndian.PutUint32(mask, ^uint32(0)<<(32-bits))
	return Cond{Field: Field{Network, 16, 4}, Mask: mask, Ranges: [][2][]byte{{p.Addr().AsSlice(), p.Addr().AsSlice()}}}
}

func from(addr string) Cond {
	value := netip.MustParseAddr(addr).AsSlice()
	return equals(Field{Network, 12, 4}, value)
}

func port(low, high uint16) Cond { return ports(destPort, [][2]uint16{{low, high}}, false)[0] }

func by(kind Kind, name string) Cond { return equals(Field{Kind: kind}, []byte(name)) }

func inverted(c Cond) Cond {
	c.Not = true
	return c
}

func rule(v Verdict, conds ...Cond) Rule { return Rule{Verdict: v, Conds: conds} }

func jump(chain string, conds ...Cond) Rule { return Rule{Verdict: Jump, Target: chain, Conds: conds} }

func rulesetOf(drops bool, rules []Rule, chains map[string][]Rule) []Ruleset {
	r := Ruleset{By: "nftables", Family: "inet", Table: "t", Chains: map[string]*Chain{"base": {Name: "base", Hook: Forward, Drops: drops}}}
	number := func(rules []Rule) []Rule {
		for i := range rules {
			rules[i].Number = i + 1
		}
		return rules
	}
	r.Chains["base"].Rules = number(rules)
	for name, rules := range chains {
		r.Chains[name] = &Chain{Name: name, Rules: number(rules)}
	}
	return []Ruleset{r}
}

func TestWalk(t *testing.T) {
	other := Cond{Field: Field{Kind: Other}}
	established := Cond{Field: Field{Kind: CtState}, Mask: binary.NativeEndian.AppendUint32(nil, 6), Ranges: [][2][]byte{{make([]byte, 4), make([]byte, 4)}}, Not: true}
	for _, tt := range []struct {
		name   string
		drops  bool
		rules  []Rule
		chains map[string][]Rule
		want   string // "accepted", "dropped", "either", and the places that drop
	}{
		{"no rules", false, nil, nil, "accepted"},
		{"policy", true, nil, nil, "dropped table inet t, chain base, policy drop"},
		{"policy, after an accept for others", true, []Rule{rule(Accept, to("10.9.0.0", 16)), rule(Accept, established)}, nil, "dropped table inet t, chain base, policy drop"},
		{"policy, after an accept", true, []Rule{rule(Accept, to("10.0.0.0", 16))}, nil, "accepted"},
		{"policy, after an accept that may match", true, []Rule{rule(Accept, from("198.51.100.1"))}, nil, "either table inet t, chain base, policy drop"},
		{"a prefix of an interface's name", true, []Rule{rule(Accept, by(OutInterface, "pods"))}, nil, "accepted"},
		{"another interface", true, []Rule{rule(Accept, by(OutInterface, "docker0\x00"))}, nil, "dropped table inet t, chain base, policy drop"},
		{"not another interface", true, []Rule{rule(Accept, inverted(by(OutInterface, "docker0\x00")))}, nil, "accepted"},
		{"a range of ports", false, []Rule{rule(Drop, port(8000, 8999))}, nil, "dropped table inet t, chain base, rule 1 aimed"},
		{"another range of ports", false, []Rule{rule(Drop, port(1, 8079)), rule(Drop, port(8081, 65535))}, nil, "accepted"},
		{"some clients, by port", false, []Rule{rule(Drop, inverted(from("198.51.100.1")), port(8080, 8080))}, nil, "either table inet t, chain base, rule 1 aimed"},
		{"some clients", false, []Rule{rule(Drop, from("198.51.100.1"))}, nil, "either table inet t, chain base, rule 1"},
		{"the original port", false, []Rule{rule(Drop, equals(Field{Kind: CtOrigDstPort}, []byte{30080 >> 8, 30080 & 0xff}))}, nil, "dropped table inet t, chain base, rule 1 aimed"},
		{"a jump that returns", true, []Rule{jump("c"), rule(Accept)}, map[string][]Rule{"c": {rule(Return), rule(Drop)}}, "accepted"},
		{"a jump for the port", false, []Rule{jump("c", port(8080, 8080))}, map[string][]Rule{"c": {rule(Continue), rule(Drop)}}, "dropped table inet t, chain c, rule 2 aimed"},
		{"a goto returns to the policy", true, []Rule{{Verdict: Goto, Target: "c"}, rule(Accept)}, map[string][]Rule{"c": {rule(Continue)}}, "dropped table inet t, chain base, policy drop"},
		{"a jump that may happen", true, []Rule{jump("c", other)}, map[string][]Rule{"c": {rule(Accept)}}, "either table inet t, chain base, policy drop"},
		{"an unsure verdict", true, []Rule{rule(Unsure)}, nil, "either table inet t, chain base, policy drop"},
		{"a chain that calls itself", true, []Rule{jump("c")}, map[string][]Rule{"c": {jump("c"), jump("c")}}, "either table inet t, chain base, policy drop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := packet
			out := Walk(rulesetOf(tt.drops, tt.rules, tt.chains), Forward, -1000, 1000, &p, nil)
			got := "accepted"
			if len(out.Drops) > 0 {
				got = map[bool]string{true: "dropped", false: "either"}[out.Dropped()]
				got += fmt.Sprintf(" %v", out.Drops[0].Place)
				if out.Drops[0].Aimed {
					got += " aimed"
				}
			}
			if got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
		})
	}
}

// Chains of a lower priority come first, and a packet that they drop does not reach others.
func TestWalkByPriority(t *testing.T) {
	sets := rulesetOf(true, nil, nil)
	sets[0].Chains["early"] = &Chain{Name: "early", Hook: Forward, Priority: -10, Rules: []Rule{{Number: 1, Verdict: Drop}}}
	p := packet
	out := Walk(sets, Forward, -1000, 1000, &p, nil)
	if len(out.Drops) != 1 || out.Drops[0].Chain != "early" || !out.Drops[0].Certain {
		t.Errorf("got %+v", out)
	}
	if out := Walk(sets, Input, -1000, 1000, &p, nil); out.Dropped() {
		t.Errorf("another hook: %+v", out)
	}
	if out := Walk(sets, Forward, 1, 1000, &p, nil); out.Dropped() {
		t.Errorf("no chain of these priorities: %+v", out)
	}
}

// A rule of others costs little, however they lead to each other.
func TestWalkEnds(t *testing.T) {
	chains := map[string][]Rule{}
	for i := range deepest {
		chains[fmt.Sprint(i)] = []Rule{jump(fmt.Sprint(i + 1)), jump(fmt.Sprint(i + 1)), jump(fmt.Sprint(i + 1)), jump(fmt.Sprint(i + 1))}
	}
	start := time.Now()
	p := packet
	Walk(rulesetOf(false, []Rule{jump("0")}, chains), Forward, -1000, 1000, &p, nil)
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Expressions and data of the kernel that make no sense do no harm.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, "tcp")
	f.Add([]byte{20, 0, 1, 0, 8, 0, 1, 0, 'c', 'm', 'p', 0, 8, 0, 2, 0, 0, 0, 0, 0}, "conntrack")
	f.Fuzz(func(_ *testing.T, b []byte, name string) {
		p := packet
		rules := Decode(1, b, Names{Set: func(string) *Set { return nil }})
		for revision := range uint32(4) {
			rules = append(rules, Rule{Conds: xtMatch(name, revision, b)})
		}
		Walk(rulesetOf(true, rules, nil), Forward, -1000, 1000, &p, nil)
		_, _ = DecodeVerdict(b)
	})
}

func BenchmarkWalk10000Rules(b *testing.B) {
	var rules []Rule
	for i := range 10_000 {
		rules = append(rules, rule(Accept, to("10.9.0.0", 16), port(uint16(i), uint16(i))))
	}
	sets := rulesetOf(false, rules, nil)
	p := packet
	for b.Loop() {
		Walk(sets, Forward, -1000, 1000, &p, nil)
	}
}
