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

// chain names the chain that an object is or is in.
func (o object) chain() string {
	if o.kind == "chain" {
		return fmt.Sprint(o.attr["family"], " ", o.attr["name"])
	}
	return fmt.Sprint(o.attr["family"], " ", o.attr["chain"])
}

// ParseTable reads the output of `nft -j list table`.
func ParseTable(listing string) (Table, error) {
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
	used := usedChains(objects)
	var t Table
	place := map[string]int{} // of the next rule of a chain
	for _, o := range objects {
		if (o.kind == "chain" || o.kind == "rule") && !used[o.chain()] {
			continue
		}
		switch o.kind {
		case "metainfo":
		case "table":
			t = append(t, fmt.Sprintf("%v table %v", o.attr["family"], o.attr["name"]))
		case "rule":
			place[o.chain()]++
			t = append(t, fmt.Sprintf("%s rule %02d %s", o.chain(), place[o.chain()], text(withoutCounts(o.attr["expr"]))))
		default:
			name := fmt.Sprintf("%v %s %v", o.attr["family"], o.kind, o.attr["name"])
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
	counts := map[string]int{}
	for _, l := range want {
		counts[l]++
	}
	for _, l := range have {
		counts[l]--
	}
	var diff []string
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

// usedChains are the chains with a hook, those that maps lead to, and those that the rules of used ones lead to. Others stay
// for a while, so that a batch needs not to wait for packets that are in them.
func usedChains(objects []object) map[string]bool {
	used := map[string]bool{}
	for n := -1; n != len(used); {
		n = len(used)
		for _, o := range objects {
			if o.kind == "chain" && o.attr["hook"] != nil {
				used[o.chain()] = true
			}
			if o.kind != "rule" || used[o.chain()] {
				targets(o.attr, func(to string) { used[fmt.Sprint(o.attr["family"], " ", to)] = true })
			}
		}
	}
	return used
}

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
			v[k] = withoutCounts(v[k])
			if k == "counter" {
				v[k] = nil
			}
		}
	}
	return v
}

// elementsOf returns a line for each element that is not a remembered client, which goes away by itself. Where the last part
// of the key is a number, it is the slot of an endpoint: those of a Service are in the order of their values.
func elementsOf(attr map[string]any, elements []any) (lines []string) {
	types, _ := attr["type"].([]any)
	slotted := len(types) > 1 && types[len(types)-1] == "integer"
	values, slots := map[string][]string{}, map[string][]float64{}
	for _, e := range elements {
		k, value := e, ""
		if pair, ok := e.([]any); ok && len(pair) == 2 {
			k, value = pair[0], text(withoutCounts(pair[1]))
		}
		m, _ := k.(map[string]any)
		if inner, ok := m["elem"].(map[string]any); ok {
			if inner["expires"] != nil {
				continue
			}
			if slotted {
				m, _ = inner["val"].(map[string]any)
			}
		}
		parts, _ := m["concat"].([]any)
		slot, ok := 0.0, false
		if len(parts) > 0 {
			slot, ok = parts[len(parts)-1].(float64)
		}
		if !slotted || !ok {
			lines = append(lines, text(withoutCounts(k))+" : "+value)
			continue
		}
		service := text(parts[:len(parts)-1])
		values[service], slots[service] = append(values[service], value), append(slots[service], slot)
	}
	for service, all := range values {
		slices.Sort(all)
		slices.Sort(slots[service])
		lines = append(lines, fmt.Sprintf("%s slots %v : %s", service, slots[service], strings.Join(all, " ")))
	}
	return lines
}

// text is v in JSON, whose objects are sorted by their keys.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error() // impossible: v came from JSON
	}
	return string(data)
}
