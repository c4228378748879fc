package doctor

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	columns    = 80
	checkWidth = 14
	textColumn = 6 + checkWidth + 1
)

// Text returns the report for people: a line for each check, and a remedy below those that are not
// ok.
func (r Report) Text() string {
	var b strings.Builder
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%-5s %-*s %s\n", l.Level, checkWidth, l.Check, wrap(l.Evidence))
		if l.Remedy != "" {
			fmt.Fprintf(&b, "%*s%s\n", textColumn, "", wrap("-> "+l.Remedy))
		}
	}
	return b.String()
}

// wrap breaks text so that it ends before the last column, if it begins at textColumn. A word is
// never broken.
func wrap(text string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case textColumn+at+1+n > columns:
			fmt.Fprintf(&b, "\n%*s", textColumn, "")
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
