package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The tags of scalars. A parsed document has no others.
const (
	nullTag  = "!!null"
	boolTag  = "!!bool"
	intTag   = "!!int"
	floatTag = "!!float"
	strTag   = "!!str"
)

// kindOf names the type of n in errors.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == nullTag:
		return "null"
	case n.Tag == boolTag:
		return "a boolean"
	case n.Tag == intTag || n.Tag == floatTag:
		return "a number"
	}
	return "a string"
}

// str returns the text of n, or false if n is no string.
func str(n *yaml.Node) (string, bool) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag != strTag {
		return "", false
	}
	return n.Value, true
}

// field returns the line and the value of key name in n; the value is nil without that key.
func field(n *yaml.Node, name string) (int, *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return 0, nil
	}
	kids := content(n)
	for i := 0; i < len(kids); i += 2 {
		if kids[i].Value == name {
			return kids[i].Line, kids[i+1]
		}
	}
	return 0, nil
}

// lineOf returns the line of the value at path in n, or of its nearest parent in the
// document. A path is like spec.ports[0].port or metadata.labels[app].
func lineOf(n *yaml.Node, path string) int {
	line := n.Line
	for _, step := range regexp.MustCompile(`\[[^]]*\]|[^.[]+`).FindAllString(path, -1) {
		step = strings.Trim(step, "[]")
		if n.Kind != yaml.SequenceNode {
			at, value := field(n, step)
			if value == nil {
				break
			}
			line, n = at, value
			continue
		}
		items := content(n)
		i, err := strconv.Atoi(step)
		if err != nil || i < 0 || i >= len(items) {
			break
		}
		n = items[i]
		line = n.Line
	}
	return line
}

// checkKeys returns an error if the object n has a key twice.
func checkKeys(n *yaml.Node) *syntaxError {
	kids := content(n)
	lines := make(map[string]int, len(kids)/2)
	for i := 0; i < len(kids); i += 2 {
		key := kids[i]
		if first := lines[key.Value]; first > 0 {
			return &syntaxError{key.Line, fmt.Sprintf("key %s is already in line %d", quote(key.Value), first)}
		}
		lines[key.Value] = key.Line
	}
	return nil
}
