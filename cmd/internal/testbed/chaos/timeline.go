package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The size of a panel, and of the axes in it; what is not a time has a line above or below them.
const (
	panelWidth, panelHeight     = 780, 190
	left, top                   = 60, 36
	axisWidth, axisHeight       = 700, 100
	failedAt, returnedAt, udpAt = -14, 112, 122
	mostSeconds                 = 4
	took, failed, other         = "#0072b2", "#d55e00", "#009e73"
)

// timeline draws the time that each new connection took over the time since a Node died, a panel for each backend.
func timeline(o *options, deaths []*result) string {
	var b strings.Builder
	const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" ` +
		`font-family="sans-serif" font-size="11">` + "\n" + `<rect width="%[1]d" height="%[2]d" fill="white"/>`
	fmt.Fprintf(&b, svg, panelWidth, panelHeight*len(deaths))
	for i, r := range deaths {
		fmt.Fprintf(&b, "\n"+`<g transform="translate(%d %d)">`, left, top+i*panelHeight)
		r.draw(&b, -2*time.Second, o.lasts+12*time.Second)
		fmt.Fprint(&b, "\n</g>")
	}
	return b.String() + "\n</svg>\n"
}

// draw draws a panel of what began between two times since the death.
func (r *result) draw(b *strings.Builder, from, to time.Duration) {
	x := func(t time.Duration) int { return int(axisWidth * (t - from) / (to - from)) }
	y := func(seconds float64) int { return int(axisHeight * (1 - min(seconds/mostSeconds, 1))) }
	text := func(x, y int, more, text string) {
		fmt.Fprintf(b, "\n"+`<text x="%d" y="%d" %s>%s</text>`, x, y, more, text)
	}
	text(0, -22, `font-weight="bold"`, r.backend)
	for s := range mostSeconds + 1 {
		fmt.Fprintf(b, "\n"+`<path d="M0 %dh%d" stroke="#ddd"/>`, y(float64(s)), axisWidth)
		text(-6, y(float64(s))+4, `text-anchor="end"`, fmt.Sprintf("%d s", s))
	}
	text(-6, failedAt+4, `text-anchor="end" fill="`+failed+`"`, "failed")
	text(-6, returnedAt+2, `text-anchor="end" fill="`+other+`"`, "the Node")
	text(-6, udpAt+6, `text-anchor="end" fill="`+failed+`"`, "UDP lost")
	for t := from; t <= to; t += 2 * time.Second {
		text(x(t), udpAt+22, `text-anchor="middle"`, fmt.Sprintf("%.0f s", t.Seconds()))
	}
	for i, t := range []time.Duration{0, r.ended.Sub(r.began)} {
		fmt.Fprintf(b, "\n"+`<path d="M%d %dV%d" stroke="#888"/>`, x(t), failedAt-4, udpAt+6)
		text(x(t)+4, 16, "", []string{"it dies", "it is back"}[i])
	}
	dots, had := map[string]string{}, map[string]bool{}
	dot := func(colour string, x, y int) {
		if d := fmt.Sprintf("M%d %dh0", x, y); !had[colour+d] {
			had[colour+d] = true
			dots[colour] += d
		}
	}
	for _, a := range r.asked {
		switch at := a.began.Sub(r.began); {
		case at < from || at > to:
		case a.pod == "" && a.udp():
			dot(failed, x(at), udpAt)
		case a.pod == "":
			dot(failed, x(at), failedAt)
		case !a.udp():
			dot(took, x(at), y(a.took.Seconds()))
			if slices.ContainsFunc(otherPods(), func(n int) bool { return a.pod == podName(n) }) {
				dot(other, x(at), returnedAt)
			}
		}
	}
	for _, colour := range []string{took, failed, other} {
		fmt.Fprintf(b, "\n"+`<path d="%s" stroke="%s" stroke-width="2.5" stroke-linecap="round"/>`, dots[colour], colour)
	}
}
