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
func parseYAML(text []byte, line int) (*yaml.Node, *syntaxError) {
	if yamlValues(text) > maxYAMLValues {
		return nil, &syntaxError{line, fmt.Sprintf("document has more than %d values: split it with ---, or write it as JSON", maxYAMLValues)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, yamlError(err, text, line)
	}
	// A second document without --- is an error.
	if err := dec.Decode(new(yaml.Node)); err != nil && !errors.Is(err, io.EOF) {
		return nil, yamlError(err, text, line)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	r := resolver{first: line, maxMerged: maxVisits(len(text)), resolved: make(map[*yaml.Node]bool)}
	return r.resolve(doc.Content[0], 0)
}

// yamlValues estimates the number of values in text, and is at least half of it.
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

// yamlError converts the parser's error, "yaml: line 3: did not ...". Its lines start from 1
// in each document.
func yamlError(err error, text []byte, first int) *syntaxError {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	e := &syntaxError{line: first, message: message}
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if digits, rest, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(digits); err == nil && n > 0 {
				e.line, e.message = first+n-1, rest
			}
		}
	}
	// go-yaml counts lines from 0. It adds 1 for errors of its scanner, but not for these of
	// its parser (yaml.v3 decode.go, parser.fail).
	switch strings.TrimPrefix(e.message, "did not find expected ") {
	case "<document start>", "node content", "key", "'-' indicator", "',' or ']'", "',' or '}'":
		if e.message != message {
			e.line++
		}
	}
	// An unexpected end may be reported after the last line.
	e.line = min(e.line, first+bytes.Count(bytes.TrimRight(text, " \t\r\n"), []byte{'\n'}))
	return e
}

// resolver reduces the nodes of a YAML document to those of JSON. It replaces aliases by
// their targets, applies merge keys, and reduces tags to JSON's. Lines become the file's.
type resolver struct {
	first     int
	resolved  map[*yaml.Node]bool // of the nodes with an anchor
	merged    int                 // keys and values copied by merge keys
	maxMerged int
}

func (r *resolver) line(n *yaml.Node) int {
	return r.first + max(1, min(n.Line, math.MaxInt32/2)) - 1
}

func (r *resolver) errorf(line int, format string, args ...any) *syntaxError {
	return &syntaxError{line, fmt.Sprintf(format, args...)}
}

// resolve returns the node to use in place of n.
func (r *resolver) resolve(n *yaml.Node, depth int) (_ *yaml.Node, err *syntaxError) {
	if depth > maxDepth {
		return nil, r.errorf(r.line(n), "nested more than %d levels deep", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		if !r.resolved[n.Alias] {
			return nil, r.errorf(r.line(n), "anchor %s contains itself", quote(n.Value))
		}
		return n.Alias, nil
	}
	n.Line = r.line(n)
	switch n.Kind {
	case yaml.SequenceNode:
		for i := range n.Content {
			if n.Content[i], err = r.resolve(n.Content[i], depth+1); err != nil {
				return nil, err
			}
		}
	case yaml.MappingNode:
		err = r.mapping(n, depth)
	default:
		err = r.scalar(n)
	}
	if n.Anchor != "" {
		r.resolved[n] = true
	}
	return n, err
}

func (r *resolver) mapping(n *yaml.Node, depth int) *syntaxError {
	kids, merged := n.Content, []*yaml.Node(nil)
	n.Content = kids[:0]
	for i := 0; i+1 < len(kids); i += 2 {
		line, merge := r.line(kids[i]), kids[i].ShortTag() == "!!merge"
		key, err := r.resolve(kids[i], depth+1)
		if err != nil {
			return err
		}
		if key.Kind != yaml.ScalarNode || key.Tag == nullTag {
			return r.errorf(line, "cannot use %s as a key", kindOf(key))
		}
		if key != kids[i] { // an alias: its target is in another line
			key = &yaml.Node{Kind: key.Kind, Tag: key.Tag, Value: key.Value, Line: line}
		}
		value, err := r.resolve(kids[i+1], depth+1)
		if err != nil {
			return err
		}
		if !merge {
			n.Content = append(n.Content, key, value)
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, s := range sources {
			if s.Kind != yaml.MappingNode {
				return r.errorf(line, "cannot merge %s into an object", kindOf(s))
			}
			if r.merged += len(s.Content); r.merged > r.maxMerged {
				return r.errorf(line, "merge keys make the document many times larger than it is")
			}
			merged = append(merged, s.Content...)
		}
	}
	if len(merged) == 0 {
		return nil
	}
	// A key in the object itself wins, then the earlier of two that are merged.
	have := make(map[string]bool, len(n.Content))
	for i := 0; i < len(n.Content); i += 2 {
		have[n.Content[i].Value] = true
	}
	for i := 0; i < len(merged); i += 2 {
		if name := merged[i].Value; !have[name] {
			have[name] = true
			n.Content = append(n.Content, merged[i], merged[i+1])
		}
	}
	return nil
}

func (r *resolver) scalar(n *yaml.Node) *syntaxError {
	const explicit = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	switch tag := n.ShortTag(); tag {
	case nullTag, boolTag, intTag, floatTag:
		n.Tag = tag
	case strTag, "!!timestamp", "!!merge":
		n.Tag = strTag
		// kubectl reads YAML 1.1, which has more booleans than the parser's YAML 1.2.
		if n.Style&explicit == 0 && isOldBoolean(n.Value) {
			n.Tag = boolTag
		}
	default:
		return r.errorf(n.Line, "tag %s is not supported", quote(tag))
	}
	return nil
}

// isOldBoolean reports whether s is a boolean in YAML 1.1 only.
func isOldBoolean(s string) bool {
	switch s {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return true
	}
	return false
}
