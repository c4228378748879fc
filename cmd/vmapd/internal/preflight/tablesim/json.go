package tablesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// fromJSON returns the text of a listing that "nft -j" printed (libnftables-json(5)), as far as Parse
// reads it. Parse reports what it does not know.
func fromJSON(text string) (string, error) {
	var listing struct {
		Objects []struct {
			Table, Set, Map, Chain, Rule *jsonObject
		} `json:"nftables"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&listing); err != nil {
		return "", fmt.Errorf("read a listing in JSON: %w", err)
	}
	tables := map[string]*jsonTable{}
	var order []string
	for _, o := range listing.Objects {
		for kind, object := range map[string]*jsonObject{"table": o.Table, "set": o.Set, "map": o.Map, "chain": o.Chain, "rule": o.Rule} {
			if object == nil {
				continue
			}
			name := object.Family + " " + object.Table
			if kind == "table" {
				name = object.Family + " " + object.Name
			}
			if tables[name] == nil {
				tables[name], order = &jsonTable{}, append(order, name)
			}
			if err := tables[name].add(kind, object); err != nil {
				return "", fmt.Errorf("table %s: %s %s: %w", name, kind, object.Name+object.Chain, err)
			}
		}
	}
	var b strings.Builder
	for _, name := range order {
		fmt.Fprintf(&b, "table %s {\n%s", name, tables[name].sets.String())
		for _, c := range tables[name].chains {
			fmt.Fprintf(&b, "chain %s {\n%s}\n", c.name, c.rules.String())
		}
		b.WriteString("}\n")
	}
	return b.String(), nil
}

// jsonObject has the fields of all kinds of objects.
type jsonObject struct {
	Family, Table, Name, Chain string

	Type, Map any // of a set: the types of its keys; of a chain: its own
	Elem      []any
	Hook      string
	Prio      json.Number
	Policy    string
	Expr      []map[string]any
}

// jsonTable collects the text of a table.
type jsonTable struct {
	sets   bytes.Buffer
	chains []*jsonChain
}

type jsonChain struct {
	name  string
	rules bytes.Buffer
}

func (t *jsonTable) add(kind string, o *jsonObject) error {
	switch kind {
	case "set", "map":
		elements, err := jsonElements(o.Elem)
		if err != nil {
			return err
		}
		names, err := jsonKey(o.Type)
		if err != nil {
			return err
		}
		if kind == "map" {
			names += " : verdict" // the parser reads what the elements have
		}
		fmt.Fprintf(&t.sets, "%s %s {\ntype %s\n", kind, o.Name, names)
		if len(o.Elem) > 0 {
			fmt.Fprintf(&t.sets, "elements = %s\n", elements)
		}
		t.sets.WriteString("}\n")
	case "chain":
		c := &jsonChain{name: o.Name}
		t.chains = append(t.chains, c)
		if o.Hook != "" {
			fmt.Fprintf(&c.rules, "type %v hook %s priority %s; policy %s;\n", o.Type, o.Hook, o.Prio, o.Policy)
		}
	case "rule":
		for _, c := range t.chains {
			if c.name != o.Chain {
				continue
			}
			for _, e := range o.Expr {
				words, err := jsonStatement(e)
				if err != nil {
					return err
				}
				c.rules.WriteString(words + " ")
			}
			c.rules.WriteString("\n")
			return nil
		}
		return errors.New("its chain is missing")
	}
	return nil
}

// only returns the name and the value of an object with one field.
func only(m map[string]any) (string, any) {
	for name, v := range m {
		if len(m) == 1 {
			return name, v
		}
	}
	return "", nil
}

func jsonStatement(e map[string]any) (string, error) {
	name, v := only(e)
	body, _ := v.(map[string]any)
	switch name {
	case "accept", "drop", "return", "masquerade", "reject":
		if reason, _ := body["type"].(string); reason == "tcp reset" {
			return "reject with tcp reset", nil
		}
		return name, nil
	case "counter", "log":
		return "", nil
	case "set": // session affinity
		return fmt.Sprintf("update %v { }", body["set"]), nil
	case "jump", "goto":
		return fmt.Sprintf("%s %v", name, body["target"]), nil
	case "match":
		left, errL := jsonKey(body["left"])
		right, errR := jsonKey(body["right"])
		op := fmt.Sprint(body["op"])
		if op == "in" {
			op = ""
		}
		return left + " " + op + " " + right, errors.Join(errL, errR)
	case "vmap":
		key, errK := jsonKey(body["key"])
		data, errD := jsonKey(body["data"])
		return key + " vmap " + data, errors.Join(errK, errD)
	case "mangle":
		key, errK := jsonKey(body["key"])
		value, errV := jsonKey(body["value"])
		return key + " set " + value, errors.Join(errK, errV)
	case "dnat":
		addr, err := jsonKey(body["addr"])
		switch {
		case err != nil || body["port"] == nil:
			return "dnat to " + addr, err
		case strings.Contains(addr, ":"):
			addr = "[" + addr + "]"
		}
		return fmt.Sprintf("dnat to %s:%v", addr, body["port"]), nil
	}
	return "", fmt.Errorf("unknown statement %q", name)
}

// jsonKey returns a value or an expression as text.
func jsonKey(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case []any:
		return jsonJoin(v, " . ") // the types of a concatenation
	case map[string]any:
		name, inner := only(v)
		body, _ := inner.(map[string]any)
		list, _ := inner.([]any)
		switch name {
		case "concat":
			return jsonJoin(list, " . ")
		case "prefix":
			return fmt.Sprintf("%v/%v", body["addr"], body["len"]), nil
		case "range":
			return jsonJoin(list, "-")
		case "set":
			return jsonElements(list)
		case "payload":
			return fmt.Sprintf("%v %v", body["protocol"], body["field"]), nil
		case "meta", "ct":
			return fmt.Sprintf("%s %v", name, body["key"]), nil
		case "fib":
			flags, err := jsonKey(body["flags"])
			return fmt.Sprintf("fib %s %v", flags, body["result"]), err
		case "numgen":
			return fmt.Sprintf("numgen %v mod %v", body["mode"], body["mod"]), nil
		case "map":
			key, errK := jsonKey(body["key"])
			data, errD := jsonKey(body["data"])
			return key + " map " + data, errors.Join(errK, errD)
		case "|", "&", "^":
			return jsonJoin(list, " "+name+" ")
		case "accept", "drop", "return", "jump", "goto":
			return jsonStatement(v)
		}
		return "", fmt.Errorf("unknown expression %q", name)
	}
	return "", fmt.Errorf("unknown value %v", v)
}

func jsonJoin(list []any, separator string) (string, error) {
	words := make([]string, len(list))
	for i, v := range list {
		var err error
		if words[i], err = jsonKey(v); err != nil {
			return "", err
		}
	}
	return strings.Join(words, separator), nil
}

// jsonElements returns the elements of a set or, in pairs, of a map.
func jsonElements(list []any) (string, error) {
	words := make([]string, 0, len(list))
	inQuotes := strings.NewReplacer(`"`, "'", "\n", " ") // what the text of a comment can't have
	for _, v := range list {
		value := ""
		if pair, ok := v.([]any); ok && len(pair) == 2 {
			var err error
			if value, err = jsonKey(pair[1]); err != nil {
				return "", err
			}
			v, value = pair[0], " : "+value
		}
		comment := ""
		if m, ok := v.(map[string]any); ok && m["elem"] != nil {
			body, _ := m["elem"].(map[string]any)
			if v = body["val"]; body["comment"] != nil {
				comment = ` comment "` + inQuotes.Replace(fmt.Sprint(body["comment"])) + `"`
			}
		}
		key, err := jsonKey(v)
		if err != nil {
			return "", err
		}
		words = append(words, key+comment+value)
	}
	return "{ " + strings.Join(words, ", ") + " }", nil
}
