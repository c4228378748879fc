// Package demo demonstrates vmapd: it builds a world in network namespaces (package lab), runs
// vmapd in its node and makes real connections. It removes everything at the end, also when it is
// interrupted.
package demo
