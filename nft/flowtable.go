package nft

import (
	"fmt"
	"strings"
)

// FastPath is the name of the flowtable with the Service connections whose packets take the fast
// path: from the ingress of one device to another, past all chains, routing and connection tracking.
const FastPath = "fast-path"

// FastPathAfter is the number of packets, in both directions, after which a connection is taken. Most
// connections are shorter, and for each one that is taken the kernel makes and frees an entry.
const FastPathAfter = 20

// Flowtable is the declaration of a flowtable. Its devices are no part of a ruleset: they come and go
// with pods, and whoever knows them puts them into the table.
type Flowtable struct {
	Name string
	Prio int32 // at the hook ingress
}

// Declaration returns the lines inside its braces.
func (t Flowtable) Declaration() []string {
	prio := fmt.Sprint(t.Prio)
	if t.Prio == PriorityFilter {
		prio = "filter"
	}
	// Without a counter, the packets would be missing in connection tracking's own counters.
	return []string{"hook ingress priority " + prio, "counter"}
}

// text is the flowtable in a ruleset.
func (t Flowtable) text() string {
	lines := strings.Join(t.Declaration(), "\n\t\t")
	return fmt.Sprintf("\n\t# the devices are added as they come\n\tflowtable %s {\n\t\t%s\n\t}\n", t.Name, lines)
}
