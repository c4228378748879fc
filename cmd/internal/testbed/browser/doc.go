// Package browser tests the page of the metrics port in a real browser, Debian's chromium, with a cluster of
// 10,000 Services. It has tests alone; make test-page runs them, in a network namespace.
package browser
