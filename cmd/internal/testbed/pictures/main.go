// Command pictures draws what a program writes to a terminal, as an SVG, or the status page, as a PNG:
//
//	CLICOLOR_FORCE=1 bin/vmapd trace web | bin/pictures 'vmapd trace web' >trace.svg
//	bin/pictures http://127.0.0.1:41201/TOKEN/#default/web 1180x560 >page.png
//
// The script beside it, world.sh, makes the pictures of vmapd's pages, with "make pictures" of the bench.
package main

import (
	"context"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

func main() {
	out, err := run(os.Args[1:])
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) ([]byte, error) {
	switch len(args) {
	case 1:
		text, err := io.ReadAll(os.Stdin)
		return []byte(draw(args[0], string(text))), err
	case 2:
		var width, height int64
		if _, err := fmt.Sscanf(args[1], "%dx%d", &width, &height); err != nil {
			return nil, fmt.Errorf("%s: want WIDTHxHEIGHT: %w", args[1], err)
		}
		return page(context.Background(), args[0], width, height)
	}
	return nil, fmt.Errorf("usage: pictures COMMAND <OUTPUT, or pictures ADDRESS WIDTHxHEIGHT")
}

// The size of a character and of the frame, in pixels.
const (
	fontSize, charWidth, lineHeight, frame = 14, 8.4, 20, 16
	foreground, background                 = "#d6d9de", "#16191d"
)

// escape is a sequence that begins or ends a colour.
var escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// draw returns the picture of a command and its output.
func draw(command, output string) string {
	lines := append([]string{"$ " + command}, strings.Split(strings.TrimRight(output, "\n"), "\n")...)
	columns := 0
	for _, l := range lines {
		columns = max(columns, utf8.RuneCountInString(escape.ReplaceAllString(l, "")))
	}
	width, height := 2*frame+int(charWidth*float64(columns)), 2*frame+lineHeight*len(lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n", width, height, background)
	fmt.Fprintf(&b, `<g font-family="monospace" font-size="%d" fill="%s">`+"\n", fontSize, foreground)
	for i, l := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" textLength="%.0f">%s</text>`+"\n", frame, frame+lineHeight*i+fontSize,
			charWidth*float64(utf8.RuneCountInString(escape.ReplaceAllString(l, ""))), spans(l))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// spans returns a line with each coloured part in an element of its own.
func spans(line string) string {
	var b strings.Builder
	colour, from := "", 0
	add := func(text string) {
		text = strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0") // each of several spaces is drawn
		if text != "" && colour != "" {
			text = fmt.Sprintf(`<tspan fill="%s">%s</tspan>`, colour, text)
		}
		b.WriteString(text)
	}
	for _, at := range escape.FindAllStringSubmatchIndex(line, -1) {
		add(line[from:at[0]])
		colour, from = colours[line[at[2]:at[3]]], at[1]
	}
	add(line[from:])
	return b.String()
}

// colours are those of the codes that vmapd writes. Every other code ends a colour.
var colours = map[string]string{"31": "#ff7b72", "32": "#6fce7d", "33": "#e5b75c"}
