// Package doctor judges a node on which vmapd runs, or should run.
//
//	what the daemon knows: Daemon ──┐
//	the node: Examine, ReadRules ───┴─> Facts ─> Diagnose ─> Report ─> commands, page, metric
//
// The daemon examines its node itself, and its report is the only one: a command examines by the same checks where no
// daemon answers. Each line is about one check: ok, warn or fail, what was found, and the remedy. A line that is not ok
// names something that breaks connections, or will, on this node; a property of the node that is only unusual is part
// of an ok line.
package doctor
