package iptsim

import (
	"errors"
	"fmt"
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

// parser reads one rule.
type parser struct {
	family model.Family
	table  string
	words  []string
	rule   Rule

	protocol  model.Protocol
	modules   map[string]bool
	recent    *recentOptions
	statistic *statisticOptions
}

// parseRule reads the words of a rule, behind the chain's name.
func parseRule(f model.Family, table, text string) (Rule, error) {
	list, err := words(text)
	if err != nil {
		return Rule{}, err
	}
	p := &parser{family: f, table: table, words: list, modules: map[string]bool{}, rule: Rule{Text: text}}
	for len(p.words) > 0 {
		if err := p.option(); err != nil {
			return Rule{}, fmt.Errorf("%s: %w", text, err)
		}
	}
	if err := errors.Join(p.endModule(), p.check()); err != nil {
		return Rule{}, fmt.Errorf("%s: %w", text, err)
	}
	return p.rule, nil
}

// next takes a word.
func (p *parser) next() (string, error) {
	if len(p.words) == 0 {
		return "", errors.New("something is missing at the end")
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w, nil
}

func (p *parser) option() error {
	name, _ := p.next()
	not := name == "!"
	if not {
		var err error
		if name, err = p.next(); err != nil {
			return err
		}
	}
	invertible := []string{"-s", "-d", "-i", "--mark", "--src-type", "--dst-type", "--match-set", "--ipvs"}
	if not && !slices.Contains(invertible, name) {
		return fmt.Errorf("%s can't be negated", name)
	}
	if p.rule.Target != nil {
		return fmt.Errorf("%s behind the target", name)
	}
	value := ""
	if !slices.Contains([]string{"--set", "--rcheck", "--update", "--rsource", "--ipvs"}, name) {
		var err error
		if value, err = p.next(); err != nil {
			return err
		}
	}
	switch name {
	case "-j", "-g":
		if err := p.endModule(); err != nil {
			return err
		}
		return p.target(value, name == "-g")
	case "-m":
		if err := p.endModule(); err != nil {
			return err
		}
		return p.module(value)
	}
	m, err := p.match(name, value, not)
	if err != nil || m == nil {
		return err
	}
	p.rule.Matches = append(p.rule.Matches, m)
	return nil
}

func (p *parser) match(name, value string, not bool) (Match, error) {
	switch name {
	case "-s", "-d":
		return p.address(value, name == "-d", not)
	case "-i":
		return parseInterface(value, not)
	case "-p":
		return p.parseProtocol(value)
	}
	module := map[string]string{
		"--dport": p.protocolName(), "--comment": "comment", "--mark": "mark",
		"--ctstate": "conntrack", "--ctstatus": "conntrack", "--src-type": "addrtype", "--dst-type": "addrtype",
		"--match-set": "set", "--ipvs": "ipvs", "--mode": "statistic", "--probability": "statistic",
		"--set": "recent", "--rcheck": "recent", "--update": "recent",
		"--seconds": "recent", "--name": "recent", "--rsource": "recent",
	}[name]
	if module == "" || !p.modules[module] {
		return nil, fmt.Errorf("unknown option %q", name)
	}
	switch name {
	case "--dport":
		return parsePorts(value)
	case "--comment":
		if len(value) > maxComment {
			return nil, errors.New("the comment is too long")
		}
		return Comment{value}, nil
	case "--mark":
		v, m, err := parseMark(value)
		return Mark{v, m, not}, err
	case "--ctstate":
		return parseState(value)
	case "--ctstatus":
		if value != "CONFIRMED" {
			return nil, fmt.Errorf("unknown status %q", value)
		}
		return Confirmed{}, nil
	case "--src-type", "--dst-type":
		if value != "LOCAL" {
			return nil, fmt.Errorf("unknown type %q", value)
		}
		return AddressType{name == "--dst-type", not}, nil
	case "--match-set":
		fields, err := p.next()
		return InSet{value, fields, not}, err
	case "--ipvs":
		return ByIPVS{not}, nil
	}
	if module == "statistic" {
		return nil, p.statistic.option(name, value)
	}
	return nil, p.recent.option(name, value)
}

func (p *parser) module(name string) error {
	switch name {
	case "tcp", "udp", "sctp":
		if name != p.protocolName() {
			return fmt.Errorf("match %s needs -p %s", name, name)
		}
	case "recent":
		p.recent = &recentOptions{}
	case "statistic":
		p.statistic = &statisticOptions{}
	case "comment", "mark", "conntrack", "addrtype", "set", "ipvs":
	default:
		return fmt.Errorf("unknown match %q", name)
	}
	p.modules[name] = true
	return nil
}

func (p *parser) protocolName() string {
	if p.protocol == 0 {
		return ""
	}
	return p.protocol.String()
}

func (p *parser) parseProtocol(value string) (Match, error) {
	for _, proto := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if value == proto.String() {
			p.protocol = proto
			return Protocol{proto}, nil
		}
	}
	return nil, fmt.Errorf("unknown protocol %q", value)
}

// address reads ADDRESS, ADDRESS/BITS or ADDRESS/MASK.
func (p *parser) address(value string, dest, not bool) (Match, error) {
	text, mask, hasMask := strings.Cut(value, "/")
	a, err := netip.ParseAddr(text)
	if err != nil || model.FamilyOf(a) != p.family || a.Zone() != "" {
		return nil, fmt.Errorf("%q is no %v address", text, p.family)
	}
	m := Address{Dest: dest, Not: not, Addr: a}
	bits := a.BitLen()
	if hasMask {
		if m.Mask, err = netip.ParseAddr(mask); err == nil && model.FamilyOf(m.Mask) == p.family {
			return m.checked()
		}
		if bits, err = strconv.Atoi(mask); err != nil || bits < 0 || bits > a.BitLen() {
			return nil, fmt.Errorf("%q is no mask", mask)
		}
	}
	all := make([]byte, a.BitLen()/8)
	for i := range bits {
		all[i/8] |= 0x80 >> (i % 8)
	}
	m.Mask, _ = netip.AddrFromSlice(all)
	return m.checked()
}

// checked refuses bits outside the mask: the programs silently cut them off, and list a
// different rule.
func (m Address) checked() (Match, error) {
	if masked(m.Addr, m.Mask) != m.Addr {
		return nil, fmt.Errorf("%v has bits outside %v", m.Addr, m.Mask)
	}
	return m, nil
}

func masked(a, mask netip.Addr) netip.Addr {
	b, m := a.AsSlice(), mask.AsSlice()
	for i := range b {
		b[i] &= m[i]
	}
	a, _ = netip.AddrFromSlice(b)
	return a
}

func parseInterface(value string, not bool) (Match, error) {
	if value == "" || len(value) > maxInterface || strings.ContainsAny(value, "/ !\"") {
		return nil, fmt.Errorf("%q is no interface", value)
	}
	name, wildcard := strings.CutSuffix(value, "+")
	return Interface{name, wildcard, not}, nil
}

func parsePorts(value string) (Match, error) {
	first, last, isRange := strings.Cut(value, ":")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a > b {
		return nil, fmt.Errorf("%q are no ports", value)
	}
	return Ports{uint16(a), uint16(b)}, nil
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

func parseState(value string) (Match, error) {
	m := State{strings.Split(value, ",")}
	for _, s := range m.Any {
		if !slices.Contains([]string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "DNAT"}, s) {
			return nil, fmt.Errorf("unknown state %q", s)
		}
	}
	return m, nil
}
