package life

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is a listing by nft, as lines that can be compared. The lines don't have
// what may differ between a table that was loaded at once and one that grew: handles, counters,
// remembered clients, chains that nothing leads to, and which endpoint has which slot.
type Table []string

// object is one object of nft's JSON: its kind and its attributes.
type object struct {
	kind string
	attr map[string]any
}

// ParseTable reads the output of `nft -j list table`, which has the family.
func ParseTable(_, listing string) (Table, error) {
	var doc struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(listing), &doc); err != nil {
		return nil, fmt.Errorf("read nft's listing: %w", err)
	}
	var objects []object
	for _, o := range doc.Objects {
		for kind, attr := range o {
			delete(attr, "handle")
			objects = append(objects, object{kind, attr})
		}
	}
	objects = withoutDeadChains(objects)
	var t Table
	place := map[string]int{} // of the next rule of a chain
	for _, o := range objects {
		family, table := o.attr["family"], o.attr["table"]
		switch o.kind {
		case "metainfo":
		case "table":
			t = append(t, fmt.Sprintf("%v table %v", family, o.attr["name"]))
		case "rule":
			chain := fmt.Sprintf("%v %v chain %v", family, table, o.attr["chain"])
			place[chain]++
			t = append(t, fmt.Sprintf("%s rule %02d %s", chain, place[chain], text(withoutCounts(o.attr["expr"]))))
		default:
			name := fmt.Sprintf("%v %v %s %v", family, table, o.kind, o.attr["name"])
			elements, _ := o.attr["elem"].([]any)
			delete(o.attr, "elem")
			t = append(t, name+" "+text(o.attr))
			for _, e := range elementsOf(o.attr, elements) {
				t = append(t, name+" element "+e)
			}
		}
	}
	slices.Sort(t)
	return t, nil
}

// Compare returns the lines that only one of two tables has, as a text for people.
func Compare(want, have Table) []string {
	var diff []string
	counts := map[string]int{}
	for _, l := range want {
		counts[l]++
	}
	for _, l := range have {
		counts[l]--
	}
	for _, l := range slices.Sorted(maps.Keys(counts)) {
		switch n := counts[l]; {
		case n > 0:
			diff = append(diff, "only rendered: "+l)
		case n < 0:
			diff = append(diff, "only in the kernel: "+l)
		}
	}
	return diff
}

// withoutDeadChains leaves out chains that have no hook and that nothing leads to: they stay
// for a while, so that a batch needs not to wait for packets that are in them.
func withoutDeadChains(objects []object) []object {
	for {
		used := map[string]bool{}
		for _, o := range objects {
			from := ""
			if o.kind == "rule" {
				from, _ = o.attr["chain"].(string)
			}
			targets(o.attr, func(to string) { used[key(o, to)] = used[key(o, to)] || to != from })
		}
		dead := func(o object) bool {
			name, _ := o.attr["chain"].(string)
			switch o.kind {
			case "chain":
				name, _ = o.attr["name"].(string)
				if o.attr["hook"] != nil {
					return false
				}
			case "rule":
				if hooked(objects, key(o, name)) {
					return false
				}
			default:
				return false
			}
			return !used[key(o, name)]
		}
		living := slices.DeleteFunc(slices.Clone(objects), dead)
		if len(living) == len(objects) {
			return objects
		}
		objects = living
	}
}

func hooked(objects []object, chain string) bool {
	return slices.ContainsFunc(objects, func(o object) bool {
		name, _ := o.attr["name"].(string)
		return o.kind == "chain" && o.attr["hook"] != nil && key(o, name) == chain
	})
}

func key(o object, chain string) string { return fmt.Sprint(o.attr["family"], " ", chain) }

// targets calls f for each chain that a jump or goto in v leads to.
func targets(v any, f func(string)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			targets(e, f)
		}
	case map[string]any:
		for k, e := range v {
			if to, ok := e.(map[string]any); ok && (k == "jump" || k == "goto") {
				if name, ok := to["target"].(string); ok {
					f(name)
				}
			}
			targets(e, f)
		}
	}
}

// withoutCounts empties the counters in v.
func withoutCounts(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutCounts(v[i])
		}
	case map[string]any:
		for k := range v {
			if k == "counter" {
				v[k] = nil
				continue
			}
			v[k] = withoutCounts(v[k])
		}
	}
	return v
}

// elementsOf returns a line for each element that is not a remembered client.
func elementsOf(attr map[string]any, elements []any) []string {
	types, _ := attr["type"].([]any)
	slotted := len(types) > 1 && types[len(types)-1] == "integer"
	slots := map[string]map[int]string{}
	var lines []string
	for _, e := range elements {
		k, value := e, ""
		if pair, ok := e.([]any); ok && len(pair) == 2 {
			k, value = pair[0], text(withoutCounts(pair[1]))
		}
		if remembered(k) {
			continue
		}
		if slotted {
			if prefix, slot, ok := slotOf(k); ok {
				if slots[prefix] == nil {
					slots[prefix] = map[int]string{}
				}
				slots[prefix][slot] = value
				continue
			}
		}
		lines = append(lines, text(withoutCounts(k))+" : "+value)
	}
	for prefix, by := range slots {
		for i, v := range slices.Sorted(maps.Values(by)) {
			if _, ok := by[i]; !ok {
				v += " (another slot is missing)"
			}
			lines = append(lines, fmt.Sprintf("%s slot %d : %s", prefix, i, v))
		}
	}
	return lines
}

// remembered reports whether an element goes away by itself.
func remembered(k any) bool {
	m, _ := k.(map[string]any)
	e, _ := m["elem"].(map[string]any)
	return e["expires"] != nil
}

// slotOf divides an element's key into the Service and the slot of one of its endpoints.
func slotOf(k any) (prefix string, slot int, ok bool) {
	if m, _ := k.(map[string]any); m["elem"] != nil {
		e, _ := m["elem"].(map[string]any)
		k = e["val"]
	}
	m, _ := k.(map[string]any)
	parts, _ := m["concat"].([]any)
	if len(parts) == 0 {
		return "", 0, false
	}
	n, ok := parts[len(parts)-1].(float64)
	return text(parts[:len(parts)-1]), int(n), ok
}

// text is v in JSON, whose objects are sorted by their keys.
func text(v any) string {
	var s strings.Builder
	e := json.NewEncoder(&s)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error() // impossible: v came from JSON
	}
	return strings.TrimSuffix(s.String(), "\n")
}
