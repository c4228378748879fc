package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
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

// panel is one diagram: seconds over the number of endpoints, both logarithmic.
type panel struct {
	title    string
	from, to int                  // powers of ten
	value    func(record) float64 // 0: not measured
}

// The size of a panel and the range of endpoints, in powers of ten.
const (
	panelWidth, panelHeight = 400, 260
	left, top               = 70, 36 // of the axes in a panel
	axisWidth, axisHeight   = 290, 170
	fewest, mostEndpoints   = 3, 6
	perService              = 10 // endpoints of each Service in the clusters that are drawn
)

// A curve is the results of one proxy.
type curve struct {
	name, colour, dashes string
	points               []record
}

func curves(all []record) []curve {
	list := []curve{{name: vmapd, colour: "#0072b2", dashes: "none"}, {name: kubeProxy, colour: "#d55e00", dashes: "6 4"}}
	for i := range list {
		for _, r := range all {
			if r.Proxy == list[i].name && r.Endpoints == r.Services*perService {
				list[i].points = append(list[i].points, r)
			}
		}
	}
	return list
}

// plot returns an SVG of the results.
func plot(all []record) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	diagrams := []panel{
		{"Time until a changed endpoint is in the kernel", -4, 2, func(r record) float64 { return r.One }},
		{"Time from start until all Services are programmed", -2, 3, func(r record) float64 { return r.Ready }},
	}
	width, height := len(diagrams)*panelWidth, panelHeight+30
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" `+
		`font-size="12">`, width, height, width, height)
	line(`<rect width="%d" height="%d" fill="white"/>`, width, height)
	list := curves(all)
	for i, p := range diagrams {
		line(`<g transform="translate(%d 0)">`, i*panelWidth)
		p.draw(line, list)
		line(`</g>`)
	}
	for i, c := range list {
		x, y := left+i*panelWidth/2, height-14
		line(`<path d="M%d %dh36" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, x, y, c.colour, c.dashes)
		line(`<text x="%d" y="%d">%s</text>`, x+44, y+4, c.name)
	}
	line(`</svg>`)
	return b.String()
}

func (p panel) draw(line func(string, ...any), list []curve) {
	x := func(n int) float64 {
		return left + axisWidth*(math.Log10(float64(n))-fewest)/(mostEndpoints-fewest)
	}
	y := func(v float64) float64 {
		return top + axisHeight*(1-(math.Log10(v)-float64(p.from))/float64(p.to-p.from))
	}
	line(`<text x="%d" y="%d" font-weight="bold">%s</text>`, left, top-14, p.title)
	for power := p.from; power <= p.to; power++ {
		at := y(math.Pow10(power))
		line(`<path d="M%d %.1fh%d" stroke="#ddd"/>`, left, at, axisWidth)
		line(`<text x="%d" y="%.1f" text-anchor="end">%s</text>`, left-6, at+4, duration(math.Pow10(power)))
	}
	for n, power := 1000, fewest; power <= mostEndpoints; n, power = n*10, power+1 {
		line(`<path d="M%.1f %dv%d" stroke="#ddd"/>`, x(n), top, axisHeight)
		line(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(n), top+axisHeight+16, thousands(n))
	}
	line(`<text x="%d" y="%d" text-anchor="middle">endpoints in the cluster, %d of each Service</text>`,
		left+axisWidth/2, top+axisHeight+34, perService)
	for _, c := range list {
		var path []string
		for _, r := range c.points {
			if v := p.value(r); v > 0 {
				path = append(path, fmt.Sprintf("%.1f %.1f", x(r.Endpoints), y(v)))
				line(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s, %s: %s</title></circle>`,
					x(r.Endpoints), y(v), c.colour, c.name, r.Cluster, duration(v))
			}
		}
		if len(path) > 0 {
			line(`<path d="M%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`,
				strings.Join(path, "L"), c.colour, c.dashes)
		}
	}
}

// duration returns seconds with about two digits, in a unit that suits.
func duration(seconds float64) string {
	const digits = 2
	value, unit := seconds, "s"
	if seconds < 1 {
		value, unit = seconds*1e3, "ms"
	}
	decimals := max(0, digits-1-int(math.Floor(math.Log10(value))))
	return strconv.FormatFloat(math.Round(value*math.Pow10(decimals))/math.Pow10(decimals), 'f', -1, 64) + " " + unit
}

func thousands(n int) string {
	if n < 1_000_000 {
		return fmt.Sprintf("%d,000", n/1000)
	}
	return fmt.Sprintf("%d,000,000", n/1_000_000)
}
