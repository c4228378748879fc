package slim

import "google.golang.org/protobuf/encoding/protowire"

// source reads the fields of messages one after the other. Once something is not as expected, bad is
// true, and there are no further fields.
type source struct {
	bad bool

	// The value of the present field.
	kind   protowire.Type
	value  []byte
	number uint64
}

// message is a place in a message: behind one of its fields.
type message struct {
	field int    // number of the present field
	rest  []byte // the fields that follow
}

func (s *source) fail() { s.bad = true }

// open begins the message that is the value of the present field.
func (s *source) open() message { return message{rest: s.bytes()} }

// next reads up to the next field. The caller reads the values that it wants.
func (s *source) next(m *message) bool {
	if len(m.rest) == 0 || s.bad {
		return false
	}
	number, kind, n := protowire.ConsumeTag(m.rest)
	if n < 0 {
		s.fail()
		return false
	}
	m.rest = m.rest[n:]
	m.field, s.kind = int(number), kind
	switch kind {
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
	return true
}

// pair reads the pair of strings that is the value of the present field: an entry of a map.
func (s *source) pair() (key string, value []byte) {
	for m := s.open(); s.next(&m); {
		switch m.field {
		case 1:
			key = s.text()
		case 2:
			value = s.bytes()
		}
	}
	return key, value
}

// into reads a message by its generated function.
func (s *source) into(message interface{ Unmarshal(data []byte) error }) {
	if message.Unmarshal(s.bytes()) != nil {
		s.fail()
	}
}

// bytes reads a field of bytes. They are a part of the data.
func (s *source) bytes() []byte {
	if s.kind != protowire.BytesType {
		s.fail()
	}
	return s.value
}

func (s *source) text() string { return string(s.bytes()) }

func (s *source) integer() uint64 {
	if s.kind != protowire.VarintType {
		s.fail()
	}
	return s.number
}

func (s *source) boolean() *bool {
	if s.integer() != 0 {
		return &yes
	}
	return &no
}

var yes, no = true, false //nolint:gochecknoglobals // shared by all objects and never written
