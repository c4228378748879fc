package iptsim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Limits of the kernel and of the programs, without the final zeros.
const (
	maxChain     = 28
	maxComment   = 255
	maxRecent    = 199
	maxInterface = 15
)

// words splits a line as iptables-restore does: at blanks outside of double quotes. Within
// these, a backslash escapes the next character.
func words(line string) ([]string, error) {
	var list []string
	var word strings.Builder
	begun, quoted, escaped := false, false, false
	for _, r := range line {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted, begun = !quoted, true
		case !quoted && (r == ' ' || r == '\t'):
			if begun {
				list = append(list, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		list = append(list, word.String())
	}
	return list, nil
}

// parser reads one rule. Each match has its options right behind it, in one order.
type parser struct {
	family   model.Family
	table    string
	words    []string
	protocol model.Protocol
	rule     rule
}

// parseRule reads the words of a rule, behind the chain's name.
func parseRule(f model.Family, table, text string) (rule, error) {
	list, err := words(text)
	p := &parser{family: f, table: table, words: list, rule: rule{text: text}}
	for err == nil && len(p.words) > 0 && p.rule.target.does == "" {
		err = p.option()
	}
	if err == nil && len(p.words) > 0 {
		err = fmt.Errorf("unknown options %q", p.words)
	}
	if err == nil {
		err = p.check()
	}
	if err != nil {
		return rule{}, fmt.Errorf("%s: %w", text, err)
	}
	return p.rule, nil
}

// next takes a word; "" if there is none.
func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// expect takes words that must be there.
func (p *parser) expect(list ...string) error {
	for _, want := range list {
		if got := p.next(); got != want {
			return fmt.Errorf("%q in place of %s", got, want)
		}
	}
	return nil
}

// name takes the name of an option, which may be negated.
func (p *parser) name() (name string, not bool) {
	if name = p.next(); name == "!" {
		return p.next(), true
	}
	return name, false
}

// when adds a match that holds for all packets or for none, or not so.
func (p *parser) when(not bool, holds func(*run, *state) bool) {
	p.rule.matches = append(p.rule.matches, func(r *run, s *state) float64 {
		if holds(r, s) != not {
			return 1
		}
		return 0
	})
}

func (p *parser) option() error {
	name, not := p.name()
	if not && !slices.Contains([]string{"-s", "-d", "-i"}, name) {
		return fmt.Errorf("%s can't be negated", name)
	}
	value := p.next()
	switch name {
	case "-s", "-d":
		return p.address(value, name == "-d", not)
	case "-i":
		if value == "" || len(value) > maxInterface || strings.ContainsAny(value, "/ !\"") {
			return fmt.Errorf("%q is no interface", value)
		}
		prefix, wildcard := strings.CutSuffix(value, "+")
		p.when(not, func(_ *run, s *state) bool {
			return s.Interface == prefix || wildcard && strings.HasPrefix(s.Interface, prefix)
		})
		return nil
	case "-p":
		for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			if value == proto.String() {
				p.protocol = proto
				p.when(false, func(_ *run, s *state) bool { return s.Protocol == proto })
				return nil
			}
		}
		return fmt.Errorf("unknown protocol %q", value)
	case "-m":
		return p.module(value)
	case "-j", "-g":
		return p.target(value, name == "-g")
	}
	return fmt.Errorf("unknown option %q", name)
}

// module reads the options of a match.
func (p *parser) module(module string) error {
	name, not := p.name()
	if not && !slices.Contains([]string{"mark", "addrtype", "set", "ipvs"}, module) {
		return fmt.Errorf("%s can't be negated", name)
	}
	switch module + " " + name {
	case "statistic --mode":
		return p.statistic()
	case "recent --set", "recent --update":
		return p.recent(name)
	case "ipvs --ipvs":
		p.when(not, func(_ *run, s *state) bool { return s.ByIPVS })
		return nil
	}
	value := p.next()
	switch module + " " + name {
	case "tcp --dport", "udp --dport", "sctp --dport":
		if p.protocol == 0 || module != p.protocol.String() {
			return fmt.Errorf("match %s needs -p %s", module, module)
		}
		return p.ports(value)
	case "comment --comment":
		if len(value) > maxComment {
			return errors.New("the comment is too long")
		}
		return nil
	case "mark --mark":
		v, m, err := parseMark(value)
		p.when(not, func(_ *run, s *state) bool { return s.Mark&m == v })
		return err
	case "conntrack --ctstate":
		return p.state(value)
	case "conntrack --ctstatus":
		p.when(false, func(_ *run, s *state) bool { return s.Confirmed || s.Established })
		if value != "CONFIRMED" {
			return fmt.Errorf("unknown status %q", value)
		}
		return nil
	case "addrtype --src-type", "addrtype --dst-type":
		p.when(not, func(r *run, s *state) bool {
			if name == "--dst-type" {
				return r.node.IsLocal(s.Dest.Addr())
			}
			return s.Node || r.node.IsLocal(s.Source)
		})
		if value != "LOCAL" {
			return fmt.Errorf("unknown type %q", value)
		}
		return nil
	case "set --match-set":
		fields := p.next()
		p.rule.sets = append(p.rule.sets, setMatch{value, fields})
		p.when(not, func(r *run, s *state) bool { return r.node.Sets.Has(value, fields, s.Packet) })
		return nil
	}
	return fmt.Errorf("unknown match %q with option %q", module, name)
}

func (p *parser) statistic() error {
	if err := p.expect("random", "--probability"); err != nil {
		return err
	}
	value := p.next()
	share, err := strconv.ParseFloat(value, 64)
	if err != nil || share <= 0 || share >= 1 {
		return fmt.Errorf("%q is no probability", value)
	}
	p.rule.matches = append(p.rule.matches, func(*run, *state) float64 { return share })
	return nil
}

func (p *parser) recent(how string) error {
	if how == "--update" {
		if err := p.expect("--seconds"); err != nil {
			return err
		}
		value := p.next()
		if n, err := strconv.Atoi(value); err != nil || n < 1 {
			return fmt.Errorf("%q are no seconds", value)
		}
	}
	err := p.expect("--name")
	name := p.next()
	if err != nil || name == "" || len(name) > maxRecent {
		return errors.Join(err, fmt.Errorf("%q is no name of a list", name))
	}
	p.when(false, func(r *run, s *state) bool {
		holds := how == "--set" || r.recent[name][s.Source]
		if holds {
			s.recorded = append(slices.Clip(s.recorded), name) // other states share the rest
		}
		return holds
	})
	return p.expect("--rsource")
}

// address reads ADDRESS, ADDRESS/BITS or ADDRESS/MASK. The mask need not be contiguous.
func (p *parser) address(value string, dest, not bool) error {
	text, bits, hasMask := strings.Cut(value, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || model.FamilyOf(a) != p.family || a.Zone() != "" {
		return fmt.Errorf("%q is no %v address", text, p.family)
	}
	mask, err := netip.ParseAddr(bits)
	if err != nil || model.FamilyOf(mask) != p.family {
		n := a.BitLen()
		if hasMask {
			if n, err = strconv.Atoi(bits); err != nil || n < 0 || n > a.BitLen() {
				return fmt.Errorf("%q is no mask", bits)
			}
		}
		mask, _ = netip.AddrFromSlice(net.CIDRMask(n, a.BitLen()))
	}
	// The programs silently cut off other bits, and list a different rule.
	if masked(a, mask) != a {
		return fmt.Errorf("%v has bits outside %v", a, mask)
	}
	p.when(not, func(_ *run, s *state) bool {
		if dest {
			return masked(s.Dest.Addr(), mask) == a
		}
		return masked(s.Source, mask) == a
	})
	return nil
}

func masked(a, mask netip.Addr) netip.Addr {
	b, m := a.AsSlice(), mask.AsSlice()
	for i := range b {
		b[i] &= m[i]
	}
	a, _ = netip.AddrFromSlice(b)
	return a
}

func (p *parser) ports(value string) error {
	first, last, isRange := strings.Cut(value, ":")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a > b {
		return fmt.Errorf("%q are no ports", value)
	}
	p.when(false, func(_ *run, s *state) bool { return uint64(s.Dest.Port()) >= a && uint64(s.Dest.Port()) <= b })
	return nil
}

// parseMark reads VALUE/MASK.
func parseMark(value string) (v, m uint32, err error) {
	a, b, _ := strings.Cut(value, "/")
	x, errA := strconv.ParseUint(a, 0, 32)
	y, errB := strconv.ParseUint(b, 0, 32)
	if errA != nil || errB != nil {
		return 0, 0, fmt.Errorf("%q is no mark with a mask", value)
	}
	return uint32(x), uint32(y), nil
}

func (p *parser) state(value string) error {
	list := strings.Split(value, ",")
	for _, s := range list {
		if !slices.Contains([]string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "DNAT"}, s) {
			return fmt.Errorf("unknown state %q", s)
		}
	}
	p.when(false, func(_ *run, s *state) bool {
		is := "NEW"
		switch {
		case s.Invalid:
			is = "INVALID"
		case s.Established:
			is = "ESTABLISHED"
		}
		return slices.Contains(list, is) || s.dnat && slices.Contains(list, "DNAT")
	})
	return nil
}

// target reads a target with its options.
func (p *parser) target(name string, isGoto bool) (err error) {
	t := target{does: name}
	switch {
	case isGoto:
		t = target{does: "goto", chain: name}
	case slices.Contains([]string{"ACCEPT", "DROP", "RETURN"}, name):
	case name == "MASQUERADE":
		if slices.Equal(p.words, []string{"--random-fully"}) {
			p.words = nil
		}
	case name == "DNAT":
		if err = p.expect("--to-destination"); err == nil {
			t.to, err = netip.ParseAddrPort(p.next())
		}
	case name == "MARK":
		if err = p.expect("--set-xmark"); err == nil {
			t.value, t.mask, err = parseMark(p.next())
		}
	case name == "REJECT":
		err = p.expect("--reject-with")
		t.with = p.next()
	default:
		t = target{does: "jump", chain: name}
	}
	p.rule.target = t
	return err
}

// check refuses targets that the kernel would refuse.
func (p *parser) check() error {
	switch t := p.rule.target; t.does {
	case "", "jump", "goto":
		if t.chain == "" {
			return errors.New("no target")
		}
	case "DNAT":
		if p.table != "nat" || p.protocol == 0 || model.FamilyOf(t.to.Addr()) != p.family || t.to.Port() == 0 {
			return fmt.Errorf("DNAT to %v in table %s, for protocol %d", t.to, p.table, p.protocol)
		}
	case "MASQUERADE":
		if p.table != "nat" {
			return errors.New("MASQUERADE is for table nat only")
		}
	case "DROP":
		if p.table == "nat" {
			return errors.New("DROP is not for table nat")
		}
	case "REJECT":
		icmp := map[model.Family]string{model.IPv4: "icmp-port-unreachable", model.IPv6: "icmp6-port-unreachable"}[p.family]
		if p.table != "filter" || t.with != icmp && (t.with != "tcp-reset" || p.protocol != model.TCP) {
			return fmt.Errorf("REJECT with %s in table %s, for protocol %d", t.with, p.table, p.protocol)
		}
	}
	return nil
}
