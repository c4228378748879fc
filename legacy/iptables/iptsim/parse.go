package iptsim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// parser reads one rule. Each match has its options right behind it, in one order. Tests with the real programs show
// that these take a rule; the parser refuses what the simulator does not know.
type parser struct {
	family model.Family
	words  []string
	rule   rule
}

// parseRule reads a rule, behind the chain's name.
func parseRule(f model.Family, text string) (rule, error) {
	words := csv.NewReader(strings.NewReader(text))
	words.Comma = ' '
	list, err := words.Read()
	if strings.Contains(text, `\`) {
		err = errors.New("the programs read a backslash as the beginning of an escape")
	}
	p := &parser{family: f, words: list, rule: rule{text: text}}
	for err == nil && len(p.words) > 0 {
		err = p.option()
	}
	if err == nil && p.rule.target.does == "" {
		err = errors.New("no target")
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
	name, not := p.next(), false
	if not = name == "!"; not {
		name = p.next()
	}
	value := p.next()
	switch name {
	case "-s", "-d":
		return p.address(value, name == "-d", not)
	case "-i":
		prefix, wildcard := strings.CutSuffix(value, "+")
		p.when(not, func(_ *run, s *state) bool {
			return s.Interface == prefix || wildcard && strings.HasPrefix(s.Interface, prefix)
		})
		return nil
	case "-p":
		p.when(not, func(_ *run, s *state) bool { return s.Protocol.String() == value })
		return nil
	case "-m":
		return p.module(value)
	case "-j", "-g":
		return p.target(value, name == "-g")
	}
	return fmt.Errorf("unknown option %q", name)
}

// module reads the options of a match.
func (p *parser) module(module string) (err error) {
	name, not := p.next(), false
	if not = name == "!"; not {
		name = p.next()
	}
	if module == "ipvs" && name == "--ipvs" {
		p.when(not, func(_ *run, s *state) bool { return s.ByIPVS })
		return nil
	}
	if module == "recent" {
		return p.recent(name)
	}
	value := p.next()
	switch module + " " + name {
	case "statistic --mode":
		err = p.expect("--probability")
		share, parseErr := strconv.ParseFloat(p.next(), 64)
		p.rule.matches = append(p.rule.matches, func(*run, *state) float64 { return share })
		return errors.Join(err, parseErr)
	case "tcp --dport", "udp --dport", "sctp --dport":
		return p.ports(value)
	case "comment --comment":
	case "mark --mark":
		v, m, err := parseMark(value)
		p.when(not, func(_ *run, s *state) bool { return s.Mark&m == v })
		return err
	case "conntrack --ctstate":
		p.when(not, func(_ *run, s *state) bool {
			is := "NEW"
			switch {
			case s.Invalid:
				is = "INVALID"
			case s.Established:
				is = "ESTABLISHED"
			}
			list := strings.Split(value, ",")
			return slices.Contains(list, is) || s.dnat && slices.Contains(list, "DNAT")
		})
	case "conntrack --ctstatus": // CONFIRMED
		p.when(not, func(_ *run, s *state) bool { return s.Confirmed || s.Established })
	case "addrtype --src-type", "addrtype --dst-type": // LOCAL
		p.when(not, func(r *run, s *state) bool {
			if name == "--dst-type" {
				return r.node.IsLocal(s.Dest.Addr())
			}
			return s.Node || r.node.IsLocal(s.Source)
		})
	case "set --match-set":
		fields := p.next()
		p.when(not, func(r *run, s *state) bool { return r.node.Sets.Has(value, fields, s.Packet) })
	default:
		return fmt.Errorf("unknown match %q with option %q", module, name)
	}
	return nil
}

func (p *parser) recent(how string) (err error) {
	if how == "--update" {
		err = p.expect("--seconds")
		p.next()
	}
	err = errors.Join(err, p.expect("--name"))
	name := p.next()
	p.when(false, func(r *run, s *state) bool {
		holds := how == "--set" || r.recent[name][s.Source]
		if holds {
			s.recorded = append(slices.Clip(s.recorded), name) // other states share the rest
		}
		return holds
	})
	return errors.Join(err, p.expect("--rsource"))
}

// address reads ADDRESS, ADDRESS/BITS or ADDRESS/MASK. The mask need not be contiguous.
func (p *parser) address(value string, dest, not bool) error {
	text, bits, hasMask := strings.Cut(value, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || model.FamilyOf(a) != p.family {
		return fmt.Errorf("%q is no %v address", text, p.family)
	}
	mask, err := netip.ParseAddr(bits)
	if err != nil {
		n := a.BitLen()
		if hasMask {
			if n, err = strconv.Atoi(bits); err != nil {
				return err
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
	p.when(false, func(_ *run, s *state) bool { return uint64(s.Dest.Port()) >= a && uint64(s.Dest.Port()) <= b })
	return errors.Join(errA, errB)
}

// parseMark reads VALUE/MASK.
func parseMark(value string) (v, m uint32, err error) {
	_, err = fmt.Sscanf(value, "0x%x/0x%x", &v, &m)
	return v, m, err
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
