package report

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/vmapd/vmapd/model"
)

// Text is a report for people.
type Text struct {
	out     strings.Builder
	colours bool
}

// columns is the length of lines of paragraphs, on any terminal.
const columns = 80

func newText(w io.Writer) *Text {
	file, ok := w.(*os.File)
	isTerminal := ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd()))
	return &Text{colours: os.Getenv("NO_COLOR") == "" && (isTerminal || os.Getenv("CLICOLOR_FORCE") == "1")}
}

func (t *Text) colour(l Level, text string) string {
	code := map[Level]string{Fail: "31", Warn: "33", OK: "32"}[l]
	if !t.colours || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Say adds a line as it is, however long.
func (t *Text) Say(format string, args ...any) { t.Mark("", format, args...) }

// Mark adds a line as it is, in the colour of a level.
func (t *Text) Mark(l Level, format string, args ...any) {
	t.out.WriteString(t.colour(l, model.OneLine(fmt.Sprintf(format, args...))) + "\n")
}

// Wrap adds a paragraph. Its first line begins with first, further ones with others.
func (t *Text) Wrap(text, first, others string) { t.Paragraph("", text, first, others) }

// Verdict adds the paragraph by which a report ends.
func (t *Text) Verdict(l Level, format string, args ...any) {
	t.Paragraph(l, fmt.Sprintf(format, args...), "=> ", "   ")
}

// Paragraph adds a paragraph in the colour of a level.
func (t *Text) Paragraph(l Level, text, first, others string) {
	text = Wrap(model.OneLine(text), first, others)
	t.out.WriteString(t.colour(l, strings.TrimSuffix(text, "\n")) + "\n")
}

// Line is a finding.
type Line struct {
	Level Level  `json:"level"`
	Name  string `json:"name"` // of the check that found it
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"` // what to do about it; "": nothing
}

// Lines adds findings, failures first, and their total.
func (t *Text) Lines(lines []Line) {
	t.Findings(lines)
	if len(lines) > 0 {
		t.Say("%s", Total(lines))
	}
}

// Findings adds findings, failures first.
func (t *Text) Findings(lines []Line) {
	const levels, names = 6, 14
	indent := strings.Repeat(" ", levels+names)
	byLevel := func(a, b Line) int { return cmp.Compare(a.Level.Rank(), b.Level.Rank()) }
	for _, l := range slices.SortedStableFunc(slices.Values(lines), byLevel) {
		first := fmt.Sprintf("%-*s%-*s ", levels, l.Level, names-1, l.Name)
		text := Wrap(model.OneLine(l.Text), first, indent)
		word := string(l.Level)
		t.out.WriteString(t.colour(l.Level, word) + strings.TrimPrefix(text, word))
		if l.Fix != "" {
			t.Wrap("-> "+l.Fix, indent, indent)
		}
	}
}

// Bad returns the findings that are not ok.
func Bad(lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Level == OK })
}

// Total returns the numbers of findings by level.
func Total(lines []Line) string {
	n := map[Level]int{}
	for _, l := range lines {
		n[l.Level]++
	}
	return fmt.Sprintf("%s, %s, %d ok", Plural(n[Fail], "failure"), Plural(n[Warn], "warning"), n[OK])
}

// Wrap breaks text at spaces, so that no line has more than columns where the words permit it. The first line begins
// with first, further ones with others. Spaces within a line stay.
func Wrap(text, first, others string) string {
	var b strings.Builder
	indent := first
	for {
		room := max(1, columns-utf8.RuneCountInString(indent))
		line, rest := text, ""
		if r := []rune(text); len(r) > room {
			cut := strings.LastIndexByte(string(r[:room+1]), ' ')
			if cut <= 0 {
				cut = strings.IndexByte(text, ' ')
			}
			if cut > 0 {
				line, rest = text[:cut], strings.TrimLeft(text[cut:], " ")
			}
		}
		b.WriteString(strings.TrimRight(indent+line, " ") + "\n")
		if rest == "" {
			return b.String()
		}
		text, indent = rest, others
	}
}
