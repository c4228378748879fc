package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// decode fills v, a pointer to an API object, from n. If n is invalid, it calls report for
// each error, up to maxObjectErrors, and returns false.
func (p *parser) decode(n *yaml.Node, v any, report func(line int, field, message string)) bool {
	text, err := appendJSON(nil, n, &p.visits, 0)
	if err != nil {
		report(n.Line, "", err.Error())
		return false
	}
	twice, err := kjson.UnmarshalStrict(text, v, kjson.DisallowDuplicateFields)
	if err == nil && len(twice) == 0 {
		return true
	}
	// These errors have no lines, and err is only the first error of its kind.
	e := examiner{left: maxObjectErrors, report: report}
	e.examine(n, n.Line, reflect.TypeOf(v).Elem(), "")
	if e.left == maxObjectErrors {
		report(n.Line, "", errors.Join(append(twice, err)...).Error())
	}
	return false
}

var (
	errTooManyAliases = errors.New("aliases make the document many times larger than it is")
	errTooDeep        = fmt.Errorf("nested more than %d levels deep", maxDepth)
)

// appendJSON appends n to out as JSON. It counts visits down with each value, so that
// aliases of aliases cost bounded time, and fails at zero.
func appendJSON(out []byte, n *yaml.Node, visits *int, depth int) (_ []byte, err error) {
	if *visits--; *visits < 0 {
		return nil, errTooManyAliases
	}
	if depth > maxDepth {
		return nil, errTooDeep
	}
	switch {
	case n.Kind == yaml.ScalarNode:
		return appendScalar(out, n), nil
	case n.Value != "":
		return append(out, n.Value...), nil // JSON already
	case n.Kind == yaml.SequenceNode:
		out = append(out, '[')
		for i, item := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendJSON(out, item, visits, depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	}
	out = append(out, '{')
	for i := 0; i < len(n.Content); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, n.Content[i].Value), ':')
		if out, err = appendJSON(out, n.Content[i+1], visits, depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendScalar appends the value of n in JSON. A number that JSON does not have, like .inf,
// becomes a string, which is no valid number.
func appendScalar(out []byte, n *yaml.Node) []byte {
	digits := strings.ReplaceAll(n.Value, "_", "")
	switch n.Tag {
	case nullTag:
		return append(out, "null"...)
	case boolTag:
		return strconv.AppendBool(out, isTrue(n.Value))
	case intTag:
		if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
			return strconv.AppendInt(out, i, 10)
		}
	case floatTag:
		if f, err := strconv.ParseFloat(digits, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			out = strconv.AppendFloat(out, f, 'f', -1, 64)
			if f == math.Trunc(f) {
				out = append(out, ".0"...) // the API accepts no 1.0 for a whole number
			}
			return out
		}
	}
	return appendString(out, n.Value)
}

// isTrue reports whether s, a boolean of YAML 1.1, is true, yes or on.
func isTrue(s string) bool {
	return strings.ContainsAny(s[:1], "tTyY") || strings.EqualFold(s, "on")
}

func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string can always be marshalled
			return append(out, quoted...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// examiner finds the fields of an object that have the wrong type. The JSON decoder's errors
// have neither lines nor the indexes of lists.
type examiner struct {
	left   int // errors to report at most
	report func(line int, field, message string)
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// examine reports the fields in n, at path, that can't be decoded into a t. The line of an
// error is that of the field's key, not that of a list below it.
func (e *examiner) examine(n *yaml.Node, line int, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := t.Kind()
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		kind = reflect.Invalid // it decodes itself
	}
	kids := content(n)
	switch {
	case e.left == 0 || n.Tag == nullTag: // null means unset
	case kind == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, item := range kids {
			e.examine(item, item.Line, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case (kind == reflect.Map || kind == reflect.Struct) && n.Kind == yaml.MappingNode:
		if err := checkKeys(n); err != nil {
			e.errorf(err.line, path, "%s", err.message)
		}
		for i := 0; i < len(kids); i += 2 {
			key, value := kids[i], kids[i+1]
			if kind == reflect.Map {
				e.examine(value, key.Line, t.Elem(), path+"["+key.Value+"]")
			} else if f, ok := fieldType(t, key.Value); ok {
				e.examine(value, key.Line, f, path+"."+key.Value)
			}
		}
	case !decodes(n, t):
		e.errorf(line, path, "%s", misfit(n, t, kind))
	}
}

func (e *examiner) errorf(line int, path, format string, args ...any) {
	if e.left > 0 {
		e.left--
		e.report(line, strings.TrimPrefix(path, "."), fmt.Sprintf(format, args...))
	}
}

// decodes reports whether n can be decoded into a t.
func decodes(n *yaml.Node, t reflect.Type) bool {
	visits := math.MaxInt // the object's limit was checked before
	text, err := appendJSON(nil, n, &visits, 0)
	return err == nil && kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface()) == nil
}

// misfit returns the reason why n can't be decoded into a t.
func misfit(n *yaml.Node, t reflect.Type, kind reflect.Kind) string {
	as := t.Name()
	switch kind {
	case reflect.Invalid:
		if n.Kind == yaml.ScalarNode && n.Tag != boolTag {
			return fmt.Sprintf("%s is not a valid %s", quote(n.Value), as)
		}
	case reflect.Struct, reflect.Map:
		as = "an object"
	case reflect.Slice:
		as = "a list"
	case reflect.String:
		as = "a string"
		if n.Kind == yaml.ScalarNode {
			as = fmt.Sprintf("a string: put %s in quotes", quote(n.Value))
		}
	case reflect.Bool:
		as = "a boolean"
	default:
		as = "a number"
		switch n.Tag {
		case floatTag:
			return fmt.Sprintf("%s is not a whole number", quote(n.Value))
		case intTag:
			return fmt.Sprintf("%s does not fit into %d bits", quote(n.Value), t.Bits())
		}
	}
	return fmt.Sprintf("cannot use %s as %s", kindOf(n), as)
}

// fieldType returns the type of struct t's field with a name in JSON.
func fieldType(t reflect.Type, name string) (reflect.Type, bool) {
	for f := range t.Fields() {
		switch tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case tag == "" && f.Anonymous: // inlined, like TypeMeta; not ObjectMeta
			if inlined, ok := fieldType(f.Type, name); ok {
				return inlined, true
			}
		case tag == name:
			return f.Type, true
		}
	}
	return nil, false
}
