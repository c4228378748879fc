package tablesim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Parse finds a table in what "nft list ruleset" or "nft list table" prints, also with -j, and reads
// it. Without such a table it returns nil.
func Parse(text string, f model.Family, name string) (*Table, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		var err error
		if text, err = fromJSON(text); err != nil {
			return nil, err
		}
	}
	p := &parser{words: split(text), table: NewTable(f, name)}
	family := "ip"
	if f == model.IPv6 {
		family = "ip6"
	}
	found := false
	for !p.done() {
		switch {
		case p.take("\n"), p.take(";"):
		case p.take("table"):
			theirs, table := p.next(), p.next()
			if err := p.expect("{"); err != nil {
				return nil, err
			}
			if theirs != family || table != name {
				p.skip()
				continue
			}
			found = true
			if err := p.readTable(); err != nil {
				return nil, fmt.Errorf("table %s %s: line %d: %w", family, name, p.line(), err)
			}
		default:
			return nil, fmt.Errorf("line %d: %q: want a table, as nft lists it", p.line(), p.next())
		}
	}
	if !found {
		return nil, nil
	}
	return p.table, p.table.Check()
}

// split cuts a listing into words. Line ends are words, too, except in braces of elements.
func split(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			line = "\n"
		}
		list = append(list, splitLine(line)...)
	}
	return list
}

func splitLine(line string) []string {
	var list []string
	begin := -1 // of a word
	end := func(i int) {
		if begin >= 0 {
			list = append(list, line[begin:i])
		}
		begin = -1
	}
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case ch == '"' && begin < 0:
			n := strings.IndexByte(line[i+1:], '"')
			if n < 0 {
				n = len(line) - i - 2
			}
			list = append(list, line[i:i+n+2])
			i += n + 1
		case ch == ' ' || ch == '\t':
			end(i)
		case ch == '\n' || ch == '{' || ch == '}' || ch == ',' || ch == ';':
			end(i)
			list = append(list, string(ch))
		case begin < 0:
			begin = i
		}
	}
	end(len(line))
	return list
}

// parser reads one table.
type parser struct {
	words []string
	at    int
	table *Table
}

func (p *parser) done() bool { return p.at >= len(p.words) }

// line returns the number of the current line.
func (p *parser) line() int {
	n := 1
	for _, w := range p.words[:min(p.at, len(p.words))] {
		if w == "\n" {
			n++
		}
	}
	return n
}

// next takes a word, "" at the end.
func (p *parser) next() string {
	w := p.peek()
	p.at++
	return w
}

func (p *parser) peek() string {
	if p.done() {
		return ""
	}
	return p.words[p.at]
}

// take takes words if they are the next ones.
func (p *parser) take(words ...string) bool {
	if len(p.words)-p.at < len(words) || !slices.Equal(p.words[p.at:p.at+len(words)], words) {
		return false
	}
	p.at += len(words)
	return true
}

// takeAll takes all next words that are some of these.
func (p *parser) takeAll(words ...string) {
	for !p.done() && slices.Contains(words, p.peek()) {
		p.at++
	}
}

func (p *parser) expect(word string) error {
	if w := p.next(); w != word {
		return fmt.Errorf("%q in place of %q", w, word)
	}
	return nil
}

// skip takes all words to the brace that closes the current block.
func (p *parser) skip() {
	for depth := 1; depth > 0 && !p.done(); {
		switch p.next() {
		case "{":
			depth++
		case "}":
			depth--
		}
	}
}

// newline skips to the end of the line.
func (p *parser) newline() {
	for !p.done() && p.peek() != "\n" && p.peek() != "}" {
		p.at++
	}
}

func (p *parser) readTable() error {
	// Sets come first: rules name them.
	from := p.at
	for _, sets := range []bool{true, false} {
		p.at = from
		for !p.take("}") {
			if p.done() {
				return errors.New("the table has no end")
			}
			if err := p.readObject(sets); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) readObject(sets bool) error {
	kind := p.next()
	switch kind {
	case "\n", ";":
		return nil
	case "set", "map", "chain":
	case "flowtable", "counter", "quota", "limit", "ct":
		for !p.done() && p.peek() != "{" {
			p.at++
		}
		p.at++
		p.skip()
		return nil
	default: // comment, flags
		p.newline()
		return nil
	}
	name := strings.Trim(p.next(), `"`)
	if err := p.expect("{"); err != nil {
		return err
	}
	var err error
	switch {
	case (kind == "chain") == sets:
		p.skip()
	case sets:
		err = p.readSet(name)
	default:
		err = p.readChain(name)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

func (p *parser) readChain(name string) error {
	c := &Chain{Name: name}
	p.table.Chains[name] = c
	for !p.take("}") {
		switch {
		case p.done():
			return errors.New("the chain has no end")
		case p.take("\n"), p.take(";"):
		case p.take("comment"):
			p.newline()
		case p.take("type"):
			c.NAT = p.next() == "nat"
			if err := p.readHook(c); err != nil {
				return err
			}
		case p.take("policy"):
			c.Drop = p.next() == "drop"
		default:
			rule, err := p.readRule()
			if err != nil {
				return err
			}
			c.Rules = append(c.Rules, rule)
		}
	}
	return nil
}

var priorities = map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}

// readHook reads "hook prerouting priority dstnat - 10".
func (p *parser) readHook(c *Chain) error {
	if err := p.expect("hook"); err != nil {
		return err
	}
	c.Hook = p.next()
	if p.take("device") {
		p.next()
	}
	if err := p.expect("priority"); err != nil {
		return err
	}
	sign := 1
	for !p.done() && p.peek() != ";" && p.peek() != "\n" {
		w := p.next()
		switch n, err := strconv.Atoi(w); {
		case w == "+" || w == "-":
			sign = map[string]int{"+": 1, "-": -1}[w]
		case err == nil:
			c.Priority += sign * n
		default:
			named, ok := priorities[w]
			if !ok {
				return fmt.Errorf("unknown priority %q", w)
			}
			c.Priority += named
		}
	}
	return nil
}

// readSet reads a named set or map. The types are in its declaration.
func (p *parser) readSet(name string) error {
	s := &Set{Name: name}
	p.table.Sets[name] = s
	var key []valueType
	for !p.take("}") {
		switch {
		case p.done():
			return errors.New("the set has no end")
		case p.take("\n"), p.take(";"):
		case p.take("type"):
			for !p.done() && p.peek() != "\n" && p.peek() != ";" && p.peek() != ":" {
				if w := p.next(); w != "." {
					t, ok := typeNames[w]
					if !ok {
						return fmt.Errorf("unknown type %q", w)
					}
					key = append(key, t)
				}
			}
			p.newline()
		case p.take("elements", "=", "{"):
			var err error
			if s.Elements, err = p.readElements(key); err != nil {
				return err
			}
		default: // comment, flags, size, timeout, typeof
			p.newline()
		}
	}
	return nil
}
