package pages

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

const (
	maxWords    = 18_000 // of all pages
	maxSentence = 30
)

var (
	generated   = regexp.MustCompile(`(?s)<!-- table: .*?<!-- end -->`)
	indented    = regexp.MustCompile(`(?m)^ {4,}.*$`)
	comment     = regexp.MustCompile(`(?s)<!--.*?-->`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	ofAUnit     = regexp.MustCompile(`(?m)^\s*$|\||^\s*(?:[-*]|\d+\.) |^#+ `)
	endOfPhrase = regexp.MustCompile(`[.!?][*)"]*\s`)
)

// prose is what somebody wrote of a page to be read: not printed output, commands or tables that a test makes.
func prose(page string) string {
	return generated.ReplaceAllString(fencedBlock.ReplaceAllString(page, ""), "")
}

func isOfAWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// Pages are short, and so are their sentences. A cell of a table is a sentence of its own.
func TestPagesAreShort(t *testing.T) {
	root := filepath.Dir(vmapdtest.Testdata(t))
	words := 0
	for _, page := range pages(t, root) {
		if filepath.Base(page) == "FAULTS.md" {
			continue // a record, with a row for each fault
		}
		text := prose(testaid.Read(t, filepath.Join(root, page)))
		for word := range strings.FieldsSeq(text) {
			if strings.ContainsFunc(word, isOfAWord) {
				words++
			}
		}
		text = indented.ReplaceAllString(comment.ReplaceAllString(text, ""), "")
		text = inlineCode.ReplaceAllString(linkTarget.ReplaceAllString(text, "]"), "code")
		for _, unit := range ofAUnit.Split(text, -1) {
			for _, sentence := range endOfPhrase.Split(unit, -1) {
				if n := len(strings.Fields(sentence)); n > maxSentence {
					t.Errorf("%s: a sentence has %d words, at most %d: %s", page, n, maxSentence, strings.Join(strings.Fields(sentence), " "))
				}
			}
		}
	}
	if words > maxWords || words == 0 {
		t.Errorf("the pages have %d words, at most %d", words, maxWords)
	}
}
