// Package doctor judges a node on which vmapd runs, or should run.
//
//	the daemon: Daemon ─> Answer ─┐
//	                              ├─> Facts ─> Diagnose ─> Report
//	the node: Examine ─> Host ────┘
//
// Each line is about one check: ok, warn or fail, what was found, and the remedy. A line that is not ok
// names something that breaks connections, or will, on this node; a property of the node that is only
// unusual is part of an ok line. The daemon judges what it alone knows, and the command judges the node.
package doctor
