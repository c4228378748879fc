package manifest

import (
	"strconv"
	"strings"
)

type kind uint8

const (
	nullKind kind = iota
	boolKind
	intKind
	floatKind
	stringKind
	listKind
	mapKind
)

// String is how an error names a value of this kind.
func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a number", "a string", "a list", "an object"}[k]
}

// node is a value of a document, in YAML and JSON alike. It is a third of the size
// of the YAML parser's, knows its line, and an alias shares its target's kids.
type node struct {
	kind kind
	line int32
	text string // a scalar as written, without quotes
	kids []node // of a list: its items; of a map: key, value, key, value, ...
}

// field returns the line of key name and its value; nil if there is none.
func (n *node) field(name string) (int32, *node) {
	if n.kind != mapKind {
		return 0, nil
	}
	for i := 0; i < len(n.kids); i += 2 {
		if n.kids[i].text == name {
			return n.kids[i].line, &n.kids[i+1]
		}
	}
	return 0, nil
}

// lineOf returns the line of the value at path, or of the nearest parent that is
// written down. A path is like spec.ports[0].port or metadata.labels[app].
func (n *node) lineOf(path string) int32 {
	line := n.line
	for path != "" {
		var step string
		switch {
		case path[0] == '.':
			path = path[1:]
			continue
		case path[0] == '[':
			step, path, _ = strings.Cut(path[1:], "]")
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			step, path = path[:end], path[end:]
		}
		if n.kind == listKind {
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(n.kids) {
				return line
			}
			n = &n.kids[i]
			line = n.line
			continue
		}
		at, next := n.field(step)
		if next == nil {
			return line
		}
		line, n = at, next
	}
	return line
}

// duplicateKey returns the index in kids of the first key that was there before,
// and that of the earlier one; -1 if there is none.
func duplicateKey(kids []node) (again, first int) {
	if len(kids) > 32 { // quadratic below is faster than a map for common sizes
		seen := make(map[string]int, len(kids)/2)
		for i := 0; i < len(kids); i += 2 {
			if first, ok := seen[kids[i].text]; ok {
				return i, first
			}
			seen[kids[i].text] = i
		}
		return -1, -1
	}
	for i := 2; i < len(kids); i += 2 {
		for j := 0; j < i; j += 2 {
			if kids[i].text == kids[j].text {
				return i, j
			}
		}
	}
	return -1, -1
}
