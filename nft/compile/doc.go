// Package compile translates a model.FamilySnapshot into a [Ruleset]: all sets, chains and elements of one family's
// table.
//
//	                  ┌── chains.go, choice.go, retry.go, usage.go: what all service ports share
//	FamilySnapshot ───┼── slots.go: which endpoint is in which slot, also after a change or a restart
//	                  └── elements.go, affinity.go: a service port
//	                               │
//	                 Ruleset ──Units──> all of it; ──Changes──> what differs from an earlier one
//
// A service port is compiled in one place, [Ruleset.Changes] and [Ruleset.Units] have all of it: its elements, and with
// session affinity its own sets and chains. Nobody behind this package asks the model about policies, kinds or numbers
// of endpoints.
package compile
