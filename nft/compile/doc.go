// Package compile translates a model.FamilySnapshot into a [Ruleset]: all sets, chains and elements of one family's
// table.
//
// A service port is compiled in one place, [Ruleset.Changes] and Elements have all of it: its elements, and with
// session affinity its own sets and chains. Nobody behind this package asks the model about policies, kinds or numbers
// of endpoints.
package compile
