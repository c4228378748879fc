// Package demo shows vmapd at work: it builds a small world in network namespaces
// (package lab), runs vmapd in its node and makes real connections. Everything is
// thrown away afterwards, also when it is interrupted.
package demo
