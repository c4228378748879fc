package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Each name that users may write has a page, a test or a scenario that uses it and, if it came after the names of the
// file known-names, an entry in the changelog. Golden output, which -update writes, is no test. CONTRIBUTING.md has
// the recipes.
func TestEachNameHasATestAndAnEntry(t *testing.T) {
	root := filepath.Dir(vmapdtest.Testdata(t))
	tests := textOfTests(t, root)
	changes := testaid.Read(t, filepath.Join(root, "CHANGELOG.md"))
	docs := testaid.Read(t, filepath.Join(vmapdtest.Folder(t), "docs/commands.md")) +
		testaid.Read(t, filepath.Join(vmapdtest.Folder(t), "docs/operate.md"))
	known := strings.Fields(testaid.Read(t, "testdata/known-names"))
	reasons := regexp.MustCompile(`\tReason\w+\s*= ("\w+")`)
	source := testaid.Read(t, filepath.Join(root, "sync/events/reasons.go"))
	kinds := map[string][]name{
		"annotation":   rows(t, "configuration.md", "annotations"),
		"setting":      slices.Concat(rows(t, "configuration.md", "kube-proxy"), rows(t, "configuration.md", "vmapd")),
		"metric":       rows(t, "operate.md", "metrics"),
		"command":      commands(cli.Command()),
		"event reason": nil,
	}
	for _, m := range reasons.FindAllStringSubmatch(source, -1) {
		kinds["event reason"] = append(kinds["event reason"], name{m[1][1 : len(m[1])-1]})
	}
	for kind, names := range kinds {
		if len(names) < 3 {
			t.Errorf("found only %d names of the kind %s", len(names), kind)
		}
		for _, n := range names {
			if !slices.ContainsFunc(n, func(s string) bool { return isIn(tests, s) }) {
				t.Errorf("%s %s: no test and no scenario has it", kind, n[0])
			}
			inTable := kind == "annotation" || kind == "setting"
			if isFlag := strings.HasPrefix(n[0], "--"); !inTable && !isFlag && !isIn(docs, n[0]) { // --help has the flags
				t.Errorf("%s %s: commands.md and operate.md do not have it", kind, n[0])
			}
			if !slices.Contains(known, n[0]) && !isIn(changes, n[0]) {
				t.Errorf("%s %s: CHANGELOG.md does not have it", kind, n[0])
			}
		}
	}
}

// name is what something is called: the name, and others for the same.
type name []string

// isIn reports whether a text has a name, in any case, that is no part of a longer one.
func isIn(text, name string) bool {
	isPart := func(r rune) bool { return isOfAWord(r) || r == '_' || r == '-' }
	for text, name = strings.ToLower(text), strings.ToLower(name); ; {
		before, behind, found := strings.Cut(text, name)
		if !found {
			return false
		}
		last, _ := utf8.DecodeLastRuneInString(before)
		first, _ := utf8.DecodeRuneInString(behind)
		if !isPart(last) && !isPart(first) {
			return true
		}
		text = behind
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| (?:`([^`]*)` )?\\|(?: `(--[^`]*)` \\|)?(?: \\|)?( ignored)?")

// rows returns the names in a table of a page, which another test makes of the code: fields, with flags. What is
// ignored needs no test.
func rows(t *testing.T, page, table string) (all []name) {
	t.Helper()
	_, text, _ := strings.Cut(testaid.Read(t, filepath.Join(vmapdtest.Folder(t), "docs", page)), "<!-- table: "+table+" -->")
	text, _, _ = strings.Cut(text, "<!-- end -->")
	for _, m := range tableRow.FindAllStringSubmatch(text, -1) {
		n := slices.DeleteFunc(name{m[1], m[2]}, func(s string) bool { return s == "" })
		if len(n) > 0 && m[3] == "" {
			all = append(all, append(n, m[1][strings.LastIndexByte(m[1], '.')+1:]))
		}
	}
	return all
}

// commands returns the names of the commands below one, and of their flags, which a short one may stand for.
func commands(above *cobra.Command) (all []name) {
	for _, c := range above.Commands() {
		if c.Hidden {
			continue
		}
		all = append(all, name{c.Name()})
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			n := name{"--" + f.Name}
			if f.Shorthand != "" {
				n = append(n, "-"+f.Shorthand)
			}
			all = append(all, n)
		})
		all = append(all, commands(c)...)
	}
	return all
}

// textOfTests returns the text of all Go files of tests, and of what they play.
func textOfTests(t *testing.T, root string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"), filepath.Ext(path) == ".txtar":
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
