package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"strings"
)

// savePlot draws the file of results.
func savePlot(path string) error {
	all, err := readRecords(path + ".json")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".svg", []byte(plot(all)), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// panel is one diagram: a value over the number of endpoints, both logarithmic.
type panel struct {
	title    string
	from, to float64 // powers of ten
	label    func(float64) string
	value    func(record) float64 // 0: not measured
}

func panels() []panel {
	s := func(v float64) string { return fmt.Sprintf("%g s", v) }
	ms := func(v float64) string { return fmt.Sprintf("%g ms", v) }
	mb := func(v float64) string { return fmt.Sprintf("%g MB", v) }
	return []panel{
		{"start, until all is programmed", -2, 2, s, func(r record) float64 { return r.Ready }},
		{"memory, at most", 1, 4, mb, func(r record) float64 { return float64(r.Peak) / 1e6 }},
		{"one endpoint replaced: p99", -1, 3, ms, func(r record) float64 { return r.OneP99 * 1e3 }},
		{"… while 1,000 slices a second are written: p50", -1, 3, ms, func(r record) float64 { return r.Churn * 1e3 }},
		{"start: processor time", -2, 2, s, func(r record) float64 { return r.Processor }},
		{"restart, with nothing changed", -2, 2, s, func(r record) float64 { return r.Restart }},
	}
}

// The size of a panel and the range of endpoints, in powers of ten.
const (
	panelWidth, panelHeight = 390, 230
	left, top               = 60, 30 // of the axes in a panel
	axisWidth, axisHeight   = 280, 160
	perRow                  = 2
	fewest, mostEndpoints   = 3, 6
)

// A curve is the results of one proxy in clusters with as many endpoints for each Service.
type curve struct {
	name, colour string
	points       []record
}

func curves(all []record) []curve {
	colours := []string{"#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9"} // told apart by everybody
	var list []curve
	for _, r := range all {
		if r.Endpoints < 1000 {
			continue
		}
		n := r.Endpoints / r.Services
		name := fmt.Sprintf("%s, %d endpoints for each Service", r.Proxy, n)
		if n == 1 {
			name = r.Proxy + ", 1 endpoint for each Service"
		}
		i := slices.IndexFunc(list, func(c curve) bool { return c.name == name })
		if i < 0 {
			i = len(list)
			list = append(list, curve{name: name, colour: colours[i%len(colours)]})
		}
		list[i].points = append(list[i].points, r)
	}
	return list
}

// plot returns an SVG of the results.
func plot(all []record) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	list, diagrams := curves(all), panels()
	rows := (len(diagrams) + perRow - 1) / perRow
	const legend = 18
	width, height := perRow*panelWidth, rows*panelHeight+legend*len(list)+legend
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="11">`, width, height, width, height)
	line(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	for i, p := range diagrams {
		line(`<g transform="translate(%d %d)">`, i%perRow*panelWidth, i/perRow*panelHeight)
		p.draw(line, list)
		line(`</g>`)
	}
	for i, c := range list {
		y := rows*panelHeight + legend*(i+1)
		line(`<circle cx="%d" cy="%d" r="4" fill="%s"/><text x="%d" y="%d">%s</text>`, left, y-4, c.colour, left+12, y, html.EscapeString(c.name))
	}
	line(`</svg>`)
	return b.String()
}

func (p panel) draw(line func(string, ...any), list []curve) {
	x := func(n int) float64 {
		return left + axisWidth*(math.Log10(float64(n))-fewest)/(mostEndpoints-fewest)
	}
	y := func(v float64) float64 {
		at := (math.Log10(v) - p.from) / (p.to - p.from)
		return top + axisHeight*(1-min(max(at, 0), 1))
	}
	line(`<text x="%d" y="%d" font-weight="bold">%s</text>`, left, top-12, p.title)
	for power := p.from; power <= p.to; power++ {
		v := math.Pow10(int(power))
		line(`<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(v), axisWidth, left-6, y(v)+4, p.label(v))
	}
	for n, power := 1000, fewest; power <= mostEndpoints; n, power = n*10, power+1 {
		line(`<path d="M%.1f %dv%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x(n), top, axisHeight, x(n), top+axisHeight+16, thousands(n))
	}
	for _, c := range list {
		var path strings.Builder
		for _, r := range c.points {
			v := p.value(r)
			if v <= 0 {
				continue
			}
			command := "L"
			if path.Len() == 0 {
				command = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x(r.Endpoints), y(v))
			line(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s, %s: %s</title></circle>`,
				x(r.Endpoints), y(v), c.colour, html.EscapeString(r.Proxy), r.Cluster, p.label(math.Round(v*100)/100))
		}
		if path.Len() > 0 {
			line(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, path.String(), c.colour)
		}
	}
}

func thousands(n int) string {
	if n < 1_000_000 {
		return fmt.Sprintf("%d,000", n/1000)
	}
	return fmt.Sprintf("%d,000,000", n/1_000_000)
}
