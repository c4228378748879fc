package main

import (
	"fmt"
	"strings"
)

// shades are of tally.buckets, and of connections that failed.
var shades = [...]struct{ color, text string }{
	{"#2e7d32", "open at once"},
	{"#7cb342", "after 1 s"},
	{"#c0ca33", "2 s"},
	{"#fbc02d", "3 s"},
	{"#fb8c00", "4 to 7 s"},
	{"#ef6c00", "later"},
	{"#c62828", "failed"},
}

// picture draws a bar for each run: how long its connections waited.
func picture(runs []*run) string {
	const left, width, height, gap, top = 300, 560, 18, 8, 44
	var b strings.Builder
	x := left
	for _, s := range shades {
		fmt.Fprintf(&b, `<rect x="%d" y="14" width="12" height="12" fill="%s"/><text x="%d" y="24">%s</text>`+"\n",
			x, s.color, x+16, s.text)
		x += 34 + 6*len(s.text)
	}
	y := top
	for _, r := range runs {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s, one of %d endpoints</text>`+"\n",
			left-8, y+13, r.proxy, r.endpoints)
		buckets, failed := r.sum.buckets(), 0
		for _, n := range r.sum.failed {
			failed += n
		}
		all, at := max(1, len(r.sum.waits)+failed), 0.0
		for i, n := range append(buckets[:], failed) {
			w := float64(n) * width / float64(all)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
				left+at, y, w, height, shades[i].color)
			at += w
		}
		y += height + gap
	}
	const text = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">` +
		"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n%s</svg>\n"
	return fmt.Sprintf(text, left+width+20, y+8, b.String())
}
