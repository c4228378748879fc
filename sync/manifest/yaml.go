package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads the one YAML document in text, whose first line has number line.
// It returns nil if the document is empty.
func parseYAML(text []byte, line int32) (*node, *syntaxError) {
	if yamlValues(text) > maxYAMLValues {
		return nil, &syntaxError{line, fmt.Sprintf("document has more than %d values: split it with ---, or write it as JSON", maxYAMLValues), true}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, yamlError(err, text, line)
	}
	// What follows a document without --- would be lost in silence otherwise.
	if err := dec.Decode(new(yaml.Node)); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlError(err, text, line)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	c := yamlConverter{first: line, maxMerged: maxVisits(len(text)), anchors: make(map[*yaml.Node]*node)}
	root, err := c.convert(doc.Content[0], 0)
	if err != nil {
		return nil, err
	}
	return &root, nil
}

// yamlValues is an upper bound of the values in text, but for a factor of two.
func yamlValues(text []byte) int {
	n := 1
	for i, b := range text {
		switch b {
		case '\n', ',', '[', '{':
			n++
		case ' ':
			if i > 0 && (text[i-1] == ':' || text[i-1] == '-' || text[i-1] == '?') {
				n++
			}
		}
	}
	return n
}

// yamlError takes the line out of the parser's message, "yaml: line 3: did not ...",
// as its lines start from 1 in each document.
func yamlError(err error, text []byte, first int32) *syntaxError {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	e := &syntaxError{line: first, message: message}
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if digits, rest, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(digits); err == nil && n > 0 {
				e.line, e.message = first+int32(n)-1, rest
			}
		}
	}
	// go-yaml counts lines from 0 within; it adds the 1 for errors of its scanner, and
	// forgets it for these of its parser (yaml.v3 decode.go, parser.fail).
	switch strings.TrimPrefix(e.message, "did not find expected ") {
	case "<document start>", "node content", "key", "'-' indicator", "',' or ']'", "',' or '}'":
		if e.message != message {
			e.line++
		}
	}
	// What is missing at the end is missed behind it.
	e.line = min(e.line, first+int32(bytes.Count(bytes.TrimRight(text, " \t\r\n"), []byte{'\n'})))
	return e
}

type yamlConverter struct {
	first     int32
	anchors   map[*yaml.Node]*node // nil while the node is being converted
	merged    int                  // values copied by merge keys
	maxMerged int
}

func (c *yamlConverter) line(y *yaml.Node) int32 {
	return c.first + int32(max(1, min(y.Line, math.MaxInt32/2))) - 1
}

func (c *yamlConverter) errorf(y *yaml.Node, format string, args ...any) *syntaxError {
	return &syntaxError{line: c.line(y), message: fmt.Sprintf(format, args...)}
}

func (c *yamlConverter) convert(y *yaml.Node, depth int) (node, *syntaxError) {
	if depth > maxDepth {
		return node{}, c.errorf(y, "nested more than %d levels deep", maxDepth)
	}
	if y.Kind == yaml.AliasNode {
		target := c.anchors[y.Alias]
		if target == nil {
			return node{}, c.errorf(y, "anchor %s contains itself", quote(y.Value))
		}
		return *target, nil
	}
	if y.Anchor != "" {
		c.anchors[y] = nil
	}
	n := node{line: c.line(y)}
	var err *syntaxError
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind = listKind
		n.kids = make([]node, len(y.Content))
		for i, item := range y.Content {
			if n.kids[i], err = c.convert(item, depth+1); err != nil {
				return node{}, err
			}
		}
	case yaml.MappingNode:
		err = c.mapping(&n, y, depth)
	default:
		err = c.scalar(&n, y)
	}
	if err != nil {
		return node{}, err
	}
	if y.Anchor != "" {
		c.anchors[y] = &n
	}
	return n, nil
}

func (c *yamlConverter) mapping(n *node, y *yaml.Node, depth int) *syntaxError {
	n.kind = mapKind
	n.kids = make([]node, 0, len(y.Content))
	var merged []node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, err := c.convert(y.Content[i], depth+1)
		if err != nil {
			return err
		}
		if key.kind == listKind || key.kind == mapKind || key.kind == nullKind {
			return c.errorf(y.Content[i], "cannot use %v as a key", key.kind)
		}
		// The line of the key is where it is written, also if it is an alias.
		key.line = c.line(y.Content[i])
		value, err := c.convert(y.Content[i+1], depth+1)
		if err != nil {
			return err
		}
		if y.Content[i].ShortTag() == "!!merge" {
			sources := []node{value}
			if value.kind == listKind {
				sources = value.kids
			}
			for _, s := range sources {
				if s.kind != mapKind {
					return c.errorf(y.Content[i], "cannot merge %v into an object", s.kind)
				}
				if c.merged += len(s.kids); c.merged > c.maxMerged {
					return c.errorf(y.Content[i], "merge keys make the document many times larger than it is")
				}
				merged = append(merged, s.kids...)
			}
			continue
		}
		n.kids = append(n.kids, key, value)
	}
	if again, first := duplicateKey(n.kids); again >= 0 {
		return duplicateKeyError(&n.kids[again], &n.kids[first])
	}
	if len(merged) > 0 {
		n.kids = mergeKeys(n.kids, merged)
	}
	return nil
}

// mergeKeys adds those of merged whose key is not there yet: what is written in the
// map itself wins, then the earlier of two that are merged in.
func mergeKeys(kids, merged []node) []node {
	have := make(map[string]bool, len(kids))
	for i := 0; i < len(kids); i += 2 {
		have[kids[i].text] = true
	}
	for i := 0; i < len(merged); i += 2 {
		if !have[merged[i].text] {
			have[merged[i].text] = true
			kids = append(kids, merged[i], merged[i+1])
		}
	}
	return kids
}

func (c *yamlConverter) scalar(n *node, y *yaml.Node) *syntaxError {
	n.text = y.Value
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.kind, n.text = nullKind, ""
	case "!!bool":
		n.kind = boolKind
	case "!!int":
		n.kind = intKind
	case "!!float":
		n.kind = floatKind
	case "!!str", "!!timestamp", "!!merge":
		n.kind = stringKind
		// kubectl reads YAML 1.1, where these are booleans; the parser used here
		// leaves that to the type that is asked for. See decoder.scalar.
		if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 {
			n.kind = plainKind(y.Value)
		}
	default:
		return c.errorf(y, "tag %s is not supported", quote(tag))
	}
	return nil
}

// plainKind is the kind of a plain scalar that YAML 1.2 takes for a string.
func plainKind(s string) kind {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return boolKind
	}
	return stringKind
}
