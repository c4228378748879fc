package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// syntaxError is a document that cannot be read, before any object is known.
type syntaxError struct {
	line    int32
	message string
	limit   bool // too large rather than wrong: no use in trying it as YAML
}

func (e *syntaxError) Error() string { return e.message }

// parseJSON reads the JSON values in text, whose first line has number line. It
// returns those that come before an error, too.
func parseJSON(text []byte, line int32) ([]*node, *syntaxError) {
	p := jsonParser{dec: json.NewDecoder(bytes.NewReader(text)), text: text, line: line}
	p.dec.UseNumber()
	var roots []*node
	for {
		p.values = 0
		var n node
		err := p.value(&n, 0)
		switch e := (*syntaxError)(nil); {
		case errors.Is(err, io.EOF):
			return roots, nil
		case errors.As(err, &e):
			return roots, e
		case err != nil:
			message := err.Error()
			if errors.Is(err, io.ErrUnexpectedEOF) {
				message = "unexpected end of JSON"
			}
			return roots, &syntaxError{line: p.here(), message: message}
		}
		roots = append(roots, &n)
	}
}

type jsonParser struct {
	dec    *json.Decoder
	text   []byte
	line   int32 // of the offset below
	offset int64
	values int
}

// here is the line of the token that was read last.
func (p *jsonParser) here() int32 {
	end := p.dec.InputOffset()
	p.line += int32(bytes.Count(p.text[p.offset:end], []byte{'\n'}))
	p.offset = end
	return p.line
}

// value reads one value. io.EOF means that there is none at the top level.
func (p *jsonParser) value(n *node, depth int) error {
	token, err := p.dec.Token()
	if err != nil {
		if err == io.EOF && depth > 0 {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	return p.fill(n, token, depth)
}

func (p *jsonParser) fill(n *node, token json.Token, depth int) error {
	n.line = p.here()
	if p.values++; p.values > maxJSONValues {
		return &syntaxError{n.line, fmt.Sprintf("document has more than %d values: split it", maxJSONValues), true}
	}
	if depth > maxDepth {
		return &syntaxError{n.line, fmt.Sprintf("nested more than %d levels deep", maxDepth), true}
	}
	switch t := token.(type) {
	case nil:
		n.kind = nullKind
	case bool:
		n.kind, n.text = boolKind, "false"
		if t {
			n.text = "true"
		}
	case json.Number:
		n.kind, n.text = intKind, string(t)
		if bytes.ContainsAny([]byte(n.text), ".eE") {
			n.kind = floatKind
		}
	case string:
		n.kind, n.text = stringKind, t
	case json.Delim:
		n.kind = listKind
		if t == '{' {
			n.kind = mapKind
		}
		for {
			token, err := p.dec.Token()
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			if err != nil {
				return err
			}
			if end, ok := token.(json.Delim); ok && (end == ']' || end == '}') {
				break
			}
			n.kids = append(n.kids, node{})
			if err := p.fill(&n.kids[len(n.kids)-1], token, depth+1); err != nil {
				return err
			}
		}
		if n.kind == mapKind {
			if again, first := duplicateKey(n.kids); again >= 0 {
				return duplicateKeyError(&n.kids[again], &n.kids[first])
			}
		}
	}
	return nil
}

func duplicateKeyError(again, first *node) *syntaxError {
	return &syntaxError{line: again.line, message: fmt.Sprintf("key %s is already in line %d", quote(again.text), first.line)}
}
