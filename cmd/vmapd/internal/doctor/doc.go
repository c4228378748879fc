// Package doctor judges a node on which vmapd runs, or should run.
//
//	the daemon's own view ──┐
//	                        ├─> Facts ─> Diagnose ─> []Line
//	the node ───────────────┘           (pure)
//
// Each line is about one check: ok, warn or fail, the evidence, and the remedy. A line that is not ok
// names something that breaks connections, or will, on this node; a property of the node that is only
// unusual is part of an ok line's evidence.
package doctor
