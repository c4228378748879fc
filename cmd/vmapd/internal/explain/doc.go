// Package explain says what becomes of one connection on one node, and why, in words
// for someone whose Service does not work.
//
//	model.Decide ─────────┐
//	Builder.Choice ───────┼──> Explanation (facts) ──> Steps, Next, Conclusion ──> text
//	the objects as given ─┘           └──────────────────> JSON <──┘
//
// It decides nothing: what happens comes from [model.Decide], and why an endpoint is not
// used from [model.Builder.Choice]. The objects as given only lend words: on which node an
// endpoint is, for which zone its hints are, and whose address nobody serves.
package explain
