package slim

import (
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	kjson "sigs.k8s.io/json"
)

// fields are the names in JSON of a message's fields that are wanted, by their numbers in protobuf.
type fields []string

// source reads the fields of messages one after the other. Once something is not as expected, bad is
// true, and there are no further fields.
type source struct {
	data []byte
	json bool
	bad  bool
	at   int // JSON: the next byte

	// Protobuf: the value of the present field.
	kind   protowire.Type
	value  []byte
	number uint64
}

const bytesType = protowire.BytesType

// message is a place in a message: behind one of its fields.
type message struct {
	field int    // its number
	begin int    // JSON: where its value begins
	rest  []byte // protobuf: the fields that follow
	value []byte // protobuf: of the field, if it has bytes
	open  bool   // JSON: there may be more fields
	first bool   // JSON: no field has been read
	seen  uint64 // JSON: a bit for each field
}

func (s *source) fail() { s.bad = true }

// open begins the message that is the value of the present field.
func (s *source) open() message {
	if !s.json {
		if s.kind != protowire.BytesType {
			s.fail()
		}
		return message{rest: s.value}
	}
	if !s.null() && s.take('{') {
		return message{open: true, first: true}
	}
	return message{}
}

// next reads up to the value of the next wanted field. The caller reads each value.
func (s *source) next(m *message, wanted fields) bool {
	if s.json {
		return s.nextMember(m, wanted)
	}
	for len(m.rest) > 0 && !s.bad {
		number, kind, n := protowire.ConsumeTag(m.rest)
		if n < 0 {
			s.fail()
			return false
		}
		m.rest = m.rest[n:]
		switch s.kind = kind; kind {
		case protowire.BytesType:
			s.value, n = protowire.ConsumeBytes(m.rest)
		case protowire.VarintType:
			s.number, n = protowire.ConsumeVarint(m.rest)
		default: // also types that do not exist, which are an error
			n = protowire.ConsumeFieldValue(number, kind, m.rest)
		}
		if n < 0 {
			s.fail()
			return false
		}
		m.rest = m.rest[n:]
		if int(number) < len(wanted) && wanted[number] != "" {
			m.field, m.value = int(number), s.value
			return true
		}
	}
	return false
}

// raw returns the bytes of the value of the present field. In JSON, it has been read.
func (s *source) raw(m *message) []byte {
	if s.json {
		return s.data[m.begin:s.at]
	}
	return m.value
}

// list is a place in a list: behind one of its items. In protobuf, each item is a field.
type list struct{ first, read bool }

// list begins the list that is the value of the present field.
func (s *source) list() list {
	if s.json && (s.null() || !s.take('[')) {
		return list{read: true}
	}
	return list{first: true}
}

// item reads up to the next item.
func (s *source) item(l *list) bool {
	first := l.first
	l.first = false
	switch {
	case s.bad || l.read:
		return false
	case !s.json:
		return first
	}
	if c := s.peek(); c == ']' {
		s.at++
		l.read = true
		return false
	}
	return first || s.take(',')
}

// pairs begins the map of strings that is the value of the present field. In protobuf, each pair is
// a field.
func (s *source) pairs() message { return s.open() }

var pairFields = fields{1: "key", 2: "value"}

// pair reads the next pair.
func (s *source) pair(m *message) (key, value []byte, ok bool) {
	if s.json {
		if !s.more(m) {
			return nil, nil, false
		}
		key = s.text()
		s.take(':')
		value = s.text()
		return key, value, !s.bad
	}
	if len(m.rest) == 0 || s.bad {
		return nil, nil, false
	}
	for s.next(m, pairFields) {
		if m.field == 1 {
			key = s.text()
		} else {
			value = s.text()
		}
	}
	return key, value, !s.bad
}

// text reads a string. It may be a part of the data.
func (s *source) text() []byte {
	if !s.json {
		if s.kind != protowire.BytesType {
			s.fail()
		}
		return s.value
	}
	if s.null() {
		return nil
	}
	begin := s.at
	n, plain := quoted(s.data[begin:])
	if n == 0 {
		s.fail()
		return nil
	}
	s.at += n
	if plain {
		return s.data[begin+1 : s.at-1]
	}
	var text string
	if json.Unmarshal(s.data[begin:s.at], &text) != nil {
		s.fail()
	}
	return []byte(text)
}

// boolean reads a boolean, nil if it is null.
func (s *source) boolean() *bool {
	value := s.number != 0
	switch {
	case !s.json:
		if s.kind != protowire.VarintType {
			s.fail()
		}
	case s.null():
		return nil
	case s.word("true"):
		value = true
	case s.word("false"):
		value = false
	default:
		s.fail()
	}
	if value {
		return &yes
	}
	return &no
}

var yes, no = true, false //nolint:gochecknoglobals // shared by all objects and never written

// integer reads a number, nil if it is null.
func (s *source) integer() *int32 {
	if !s.json {
		if s.kind != protowire.VarintType {
			s.fail()
		}
		return new(int32(s.number)) //nolint:gosec // as generated code does
	}
	if s.null() {
		return nil
	}
	s.peek()
	begin := s.at
	for s.at < len(s.data) && (s.data[s.at] >= '0' && s.data[s.at] <= '9' || s.data[s.at] == '-') {
		s.at++
	}
	n, err := strconv.ParseInt(string(s.data[begin:s.at]), 10, 32)
	if err != nil {
		s.fail()
	}
	return new(int32(n))
}

// into reads the value of the present field into a type of the API.
func (s *source) into(m *message, value interface{ Unmarshal(b []byte) error }) {
	var err error
	if s.json {
		s.skip()
		err = kjson.UnmarshalCaseSensitivePreserveInts(s.raw(m), value)
	} else {
		if s.kind != protowire.BytesType {
			s.fail()
		}
		err = value.Unmarshal(s.value)
	}
	if err != nil {
		s.fail()
	}
}
