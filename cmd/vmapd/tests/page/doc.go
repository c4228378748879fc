// Package page tests the page of vmapd ui in a real browser, Debian's chromium, with a cluster of
// 10,000 Services. It has tests alone, which run in a network namespace of their own.
package page
