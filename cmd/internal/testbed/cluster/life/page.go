package life

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Page is the commands of a page in Markdown.
type Page struct{ Blocks []Block }

// Block is a fenced block with commands.
type Block struct {
	Section string // the last heading before the block
	Script  string // the commands; without prompt, and without their output
}

// ParsePage returns the blocks with commands. Of a block in the language console, they
// are the lines with a prompt; a block in another language than that or none has no commands.
func ParsePage(markdown string) Page {
	var p Page
	section, language, fenced := "", "", false
	var body []string
	for line := range strings.Lines(markdown) {
		line = strings.TrimSuffix(line, "\n")
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && fenced:
			fenced = false
			if script := commands(language, body); script != "" {
				p.Blocks = append(p.Blocks, Block{section, script})
			}
		case isFence:
			fenced, language, body = true, fence, nil
		case fenced:
			body = append(body, line)
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
		}
	}
	return p
}

func commands(language string, body []string) string {
	switch language {
	case "":
		return strings.Join(body, "\n")
	case "console":
		var typed []string
		for _, l := range body {
			if c, ok := strings.CutPrefix(l, "$ "); ok {
				typed = append(typed, c)
			}
		}
		return strings.Join(typed, "\n")
	}
	return ""
}

// Find returns the commands of the one block in a section that contains a text.
func (p Page) Find(section, contains string) (string, error) {
	fits := func(b Block) bool {
		return strings.HasPrefix(b.Section, section) && strings.Contains(b.Script, contains)
	}
	i := slices.IndexFunc(p.Blocks, fits)
	if i < 0 || slices.ContainsFunc(p.Blocks[i+1:], fits) {
		return "", fmt.Errorf("not exactly one block of commands with %q in section %q", contains, section)
	}
	return p.Blocks[i].Script, nil
}

// Lines returns the commands of a script, one by one.
func Lines(script string) []string {
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(script, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// FillIn replaces words in capitals, as pages have them for what the reader is to fill in.
func FillIn(script string, values map[string]string) string {
	words := slices.SortedFunc(maps.Keys(values), func(a, b string) int { return len(b) - len(a) })
	for _, word := range words {
		script = regexp.MustCompile(`\b`+word+`\b`).ReplaceAllLiteralString(script, values[word])
	}
	return script
}
