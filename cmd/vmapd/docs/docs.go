// Package docs has the pages with tables and help that the program prints, too, so that both say the same.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed commands.md
var commands string

// Configuration has all settings.
//
//go:embed configuration.md
var Configuration string

// FromKubeProxy has the differences from kube-proxy.
//
//go:embed from-kube-proxy.md
var FromKubeProxy string

// Rows returns the cells of each row of a table in a page.
func Rows(page, table string) (rows [][]string) {
	_, text, _ := strings.Cut(page, "<!-- table: "+table+" -->")
	text, _, _ = strings.Cut(text, "<!-- end -->")
	_, text, _ = strings.Cut(text, "|---|\n")
	for line := range strings.Lines(text) {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|\n"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if len(cells) > 1 {
			rows = append(rows, cells)
		}
	}
	return rows
}

// Help returns the help of a command: the first block of its section in the page Commands, and of more sections.
func Help(sections ...string) string {
	var all []string
	for _, name := range sections {
		_, text, _ := strings.Cut(commands, "\n## "+name+"\n")
		_, text, _ = strings.Cut(text, "```text\n")
		text, _, _ = strings.Cut(text, "\n```")
		all = append(all, text)
	}
	return strings.Join(all, "\n\n")
}
