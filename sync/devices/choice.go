// Package devices follows the network devices whose packets take the fast path.
package devices

import (
	"fmt"
	"slices"
	"strings"
)

// Choice says which devices are chosen. The zero value chooses none.
type Choice struct {
	Auto     bool
	Patterns []string // names; with * at the end, beginnings of names
}

// On reports whether any device can be chosen.
func (c Choice) On() bool { return c.Auto || len(c.Patterns) > 0 }

// longestName is the longest name of a device, IFNAMSIZ without its final zero.
const longestName = 15

// Parse reads a choice: "off", "auto", or patterns with commas between them.
func Parse(text string) (Choice, error) {
	switch text {
	case "", "off":
		return Choice{}, nil
	case "auto":
		return Choice{Auto: true}, nil
	}
	var c Choice
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		name := strings.TrimSuffix(p, "*")
		switch {
		case name == "" || name == "." || name == ".." || strings.ContainsAny(name, "*/: \t\n") || len(name) > longestName:
			return Choice{}, fmt.Errorf("%q is no name of a device, nor the beginning of one with * behind it", p)
		case p == "off" || p == "auto":
			return Choice{}, fmt.Errorf("%q excludes names of devices", p)
		}
		c.Patterns = append(c.Patterns, p)
	}
	return c, nil
}

// link is what a choice depends on.
type link struct {
	index    int
	name     string
	kind     string // "veth", "bridge", ...; "device" for hardware
	ethernet bool
	master   string // the kind of the device that it is a part of
}

// wants reports whether a device is chosen. auto takes the Ethernet devices that packets are forwarded
// between, whatever they are connected to: the kernel takes connections of Services only. A part of
// a bond hands its packets to the bond before they are looked up; the port of a bridge does not, and the
// kernel sends to it past the bridge. Tunnels without Ethernet have to be named.
func (c Choice) wants(l link) bool {
	if c.Auto {
		return l.ethernet && !slices.Contains([]string{"dummy", "ifb", "nlmon"}, l.kind) &&
			l.master != "bond" && l.master != "team"
	}
	return slices.ContainsFunc(c.Patterns, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return p == l.name || ok && strings.HasPrefix(l.name, prefix)
	})
}

// of returns the links that are chosen, by name.
func (c Choice) of(links []link) []link {
	chosen := slices.DeleteFunc(slices.Clone(links), func(l link) bool { return !c.wants(l) })
	slices.SortFunc(chosen, func(a, b link) int { return strings.Compare(a.name, b.name) })
	return chosen
}
