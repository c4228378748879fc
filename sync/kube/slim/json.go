package slim

import (
	"bytes"
	"slices"
)

// nextMember is next for JSON. A wanted field that is there twice is not as expected: decoders
// differ about it.
func (s *source) nextMember(m *message, wanted fields) bool {
	for s.more(m) {
		name := s.text()
		if !s.take(':') {
			return false
		}
		s.peek()
		m.begin = s.at
		number := slices.IndexFunc(wanted, func(w string) bool { return w == string(name) })
		if len(name) == 0 || number < 0 {
			s.skip()
			continue
		}
		if m.seen&(1<<number) != 0 {
			s.fail()
		}
		m.seen |= 1 << number
		m.field = number
		return !s.bad
	}
	return false
}

// more reports whether an object has another member, and goes to its name.
func (s *source) more(m *message) bool {
	if s.bad || !m.open {
		return false
	}
	if s.peek() == '}' {
		s.at++
		m.open = false
		return false
	}
	if !m.first && !s.take(',') {
		return false
	}
	m.first = false
	if s.peek() != '"' {
		s.fail()
	}
	return !s.bad
}

// peek goes to the next byte that is no white space, and returns it; 0 at the end.
func (s *source) peek() byte {
	if s.at < len(s.data) && s.data[s.at] > ' ' {
		return s.data[s.at] // as nearly always
	}
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take reads one byte, which must be there.
func (s *source) take(c byte) bool {
	if s.bad || s.peek() != c {
		s.fail()
		return false
	}
	s.at++
	return true
}

func (s *source) null() bool { return s.peek() == 'n' && s.word("null") }

func (s *source) word(w string) bool {
	s.peek()
	if !bytes.HasPrefix(s.data[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

// skip reads a value of any kind.
func (s *source) skip() {
	var v value
	s.peek()
	n, done := v.scan(s.data[s.at:])
	s.at += n
	if !done && !v.ended() {
		s.fail()
	}
}

// quoted returns the length of the string at the beginning of b, with its quotes; 0 if there is none.
// It is plain if what is between the quotes is the text itself.
func quoted(b []byte) (n int, plain bool) {
	if len(b) == 0 || b[0] != '"' {
		return 0, false
	}
	plain = true
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, plain
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c > '~':
			plain = false
		}
	}
	return 0, false
}

// value scans a JSON value, of which the bytes come in parts. It looks at no more than where it ends.
type value struct {
	depth   int
	inText  bool
	escaped bool // the next byte of a text is
	begun   bool
}

// ended reports whether the value is a number or a word, which end where the bytes do.
func (v *value) ended() bool { return v.begun && v.depth == 0 && !v.inText }

// scan reads bytes of the value, and reports whether these are its last. A number or a word ends before
// the next byte that belongs to neither.
func (v *value) scan(b []byte) (n int, done bool) {
	for n < len(b) {
		if v.inText {
			n += v.text(b[n:])
			if !v.inText && v.depth == 0 {
				return n, true
			}
			continue
		}
		switch c := b[n]; c {
		case '"':
			v.inText, v.begun = true, true
		case '{', '[':
			v.depth++
			v.begun = true
		case '}', ']':
			if v.depth == 0 {
				return n, true
			}
			if v.depth--; v.depth == 0 {
				return n + 1, true
			}
		case ',', ':':
			if v.depth == 0 {
				return n, true
			}
		case ' ', '\t', '\n', '\r':
			if v.depth == 0 && v.begun {
				return n, true
			}
		default:
			v.begun = true
		}
		n++
	}
	return n, false
}

// text reads up to the end of a string, and returns the number of bytes.
func (v *value) text(b []byte) int {
	if v.escaped {
		v.escaped = false
		return 1
	}
	end := bytes.IndexByte(b, '"')
	n := end
	if end < 0 {
		n = len(b)
	}
	slashes := 0 // before the quote; they escape one another
	for slashes < n && b[n-1-slashes] == '\\' {
		slashes++
	}
	v.escaped = slashes%2 == 1
	switch {
	case end < 0:
		return n
	case v.escaped:
		v.escaped = false
	default:
		v.inText = false
	}
	return end + 1
}
