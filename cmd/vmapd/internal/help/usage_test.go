package help

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", Columns+5)
	for name, test := range map[string]struct{ text, first, others, want string }{
		"a short line stays":                       {"a  b", "  ", "", "  a  b\n"},
		"nothing is one empty line":                {"", "", "", "\n"},
		"80 columns are one line":                  {strings.Repeat("x", 78) + " y", "", "  ", strings.Repeat("x", 78) + " y\n"},
		"81 are two, without a space at the end":   {strings.Repeat("x", 79) + " y", "", "  ", strings.Repeat("x", 79) + "\n  y\n"},
		"a word that is too long has its own line": {"a " + long + " b", "", "  ", "a\n  " + long + "\n  b\n"},
		"letters count, not bytes":                 {strings.Repeat("é", 78) + " é", "", "  ", strings.Repeat("é", 78) + " é\n"},
	} {
		if diff := cmp.Diff(test.want, wrap(test.text, test.first, test.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTextOfASmallCommand(t *testing.T) {
	c := &cobra.Command{
		Use: "count FILE", Short: "Count words", Run: func(*cobra.Command, []string) {},
		Long: "Count counts the words of a file, which may be of any size, and prints their number\nand nothing else.\n\n  count    a.txt",
	}
	f := c.Flags()
	f.StringArrayP("word", "w", nil, "count only this `WORD`")
	f.Int32("most", 0, "a maximum")
	f.String("color", "auto", "colors of the output")
	f.Bool("secret", false, "not shown")
	_ = f.MarkHidden("secret")
	want := `Count counts the words of a file, which may be of any size, and prints their
number and nothing else.

  count    a.txt

Usage:
  count FILE [flags]

Flags:
  --color string
        colors of the output (default auto)
  --most number
        a maximum
  -w, --word WORD
        count only this WORD
`
	if diff := cmp.Diff(want, Text(c)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
