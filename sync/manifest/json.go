package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// syntaxError is an error of a whole document.
type syntaxError struct {
	line    int
	message string
}

// parseJSON reads the JSON values in text, whose first line has the given number, and also
// returns those before an error. The node of a list or an object has only its text, as most
// objects are decoded from it directly. [content] makes the nodes below.
func parseJSON(text string, line int) ([]*yaml.Node, *syntaxError) {
	r := jsonReader{dec: json.NewDecoder(strings.NewReader(text)), text: text, line: line}
	var roots []*yaml.Node
	for {
		n, err := r.value()
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			at, message := len(strings.TrimRight(text, " \t\r\n")), err.Error()
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				at = int(syntax.Offset) - 1
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				message = "unexpected end of JSON"
			}
			return roots, &syntaxError{line + strings.Count(text[:at], "\n"), message}
		}
		roots = append(roots, n)
	}
}

// content returns the items of a list, or the keys and values of an object.
func content(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode || n.Value == "" || len(n.Content) > 0 {
		return n.Content
	}
	r := jsonReader{dec: json.NewDecoder(strings.NewReader(n.Value)), text: n.Value, line: n.Line}
	// There are no errors: the text is valid, or n would not exist.
	_, _ = r.dec.Token()
	for r.dec.More() {
		if n.Kind == yaml.MappingNode {
			key, _ := r.dec.Token()
			name, _ := key.(string)
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: name, Line: r.lineAt(r.dec.InputOffset())})
		}
		item, _ := r.value()
		n.Content = append(n.Content, item)
	}
	return n.Content
}

// jsonReader reads JSON values, and counts lines.
type jsonReader struct {
	dec    *json.Decoder
	text   string
	line   int // of the offset below
	offset int64
	raw    json.RawMessage
}

// lineAt returns the line of an offset. Offsets must not decrease between calls.
func (r *jsonReader) lineAt(offset int64) int {
	r.line += strings.Count(r.text[r.offset:offset], "\n")
	r.offset = offset
	return r.line
}

func (r *jsonReader) value() (*yaml.Node, error) {
	if err := r.dec.Decode(&r.raw); err != nil {
		return nil, err
	}
	end := r.dec.InputOffset()
	start := end - int64(len(r.raw))
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: r.text[start:end], Line: r.lineAt(start)}
	switch n.Value[0] {
	case '{':
		n.Kind = yaml.MappingNode
	case '[':
		n.Kind = yaml.SequenceNode
	case '"':
		n.Tag = strTag
		_ = json.Unmarshal(r.raw, &n.Value)
	default:
		n.Tag = n.ShortTag() // numbers, booleans and null are those of YAML
	}
	return n, nil
}

// checkJSON returns an error if values in text are too deep or too many. The text may be
// invalid JSON.
func checkJSON(text []byte, line int) *syntaxError {
	depth, values, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case quoted:
			// The other cases don't apply in a string.
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '{', c == '[':
			depth++
			values++
		case c == ',', c == ':':
			values++
		case c == '}', c == ']':
			if depth--; depth <= 0 {
				depth, values = 0, 0
			}
		}
		if depth > maxDepth {
			return &syntaxError{line, fmt.Sprintf("nested more than %d levels deep", maxDepth)}
		}
		if values > maxJSONValues {
			return &syntaxError{line, fmt.Sprintf("document has more than %d values: split it", maxJSONValues)}
		}
	}
	return nil
}
