package slim

import "google.golang.org/protobuf/encoding/protowire"

// walk calls do with the fields of a message that are strings, bytes or messages, and skips others.
func walk(message []byte, do func(field int, value []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.BytesType {
			if err := do(int(field), value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

// count returns how often a message has a field.
func count(message []byte, wanted int) (n int) {
	_ = walk(message, func(field int, _ []byte) error {
		if field == wanted {
			n++
		}
		return nil
	})
	return n
}

// without calls read with the parts of a message that lack a field, one after the other: generated functions add each
// to what they have read.
func without(message []byte, omitted protowire.Number, read func([]byte) error) error {
	part := message // from here
	for rest := message; len(rest) > 0; {
		field, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if field == omitted {
			if err := read(part[:len(part)-len(rest)]); err != nil {
				return err
			}
			part = rest[n:]
		}
		rest = rest[n:]
	}
	return read(part)
}
