package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// instead has the word of the field for words that native readers stumble over.
var instead = map[string]string{
	`befalls?`:                        "affects",
	`go(es)? before`:                  "has priority over",
	`counts? (for|as|against)`:        "applies, is treated as",
	`on paper`:                        "simulated",
	`others'`:                         "other programs'",
	`(rules|tables|chains) of others`: "rules of other programs",
	`for want of`:                     "because no … is",
	`in vain`:                         "without effect",
	`takes? place`:                    "happens",
	`turns? out`:                      "is",
	`grows? old`:                      "is not updated",
	`a sign of`:                       "detected",
	`passed on untouched`:             "not translated",
}

// Pages, help, messages, manifests, and Go files that are not tests have none of these words.
func TestWordsAreThoseOfTheField(t *testing.T) {
	root := filepath.Dir(vmapdtest.Testdata(t))
	banned := map[*regexp.Regexp]string{}
	for word, better := range instead {
		banned[regexp.MustCompile(`(?i)(^|\W)(`+word+`)(\W|$)`)] = better
	}
	files := 0
	check := func(path, text string) {
		for r, better := range banned {
			for _, at := range r.FindAllStringIndex(text, -1) {
				t.Errorf("%s: %q: better: %s", strings.TrimPrefix(path, root+"/"), around(text, at), better)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inRoot, _ := filepath.Rel(root, path)
		if d.IsDir() && (inRoot == ".git" || inRoot == "bin") {
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".md", ".yaml", ".html", ".js", ".sh":
			text, err := os.ReadFile(path)
			files++
			check(path, string(text))
			return err
		case ".go":
			if strings.HasSuffix(path, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(path)
			files++
			check(path, strings.Join(strings.Fields(strings.ReplaceAll(string(text), "//", "")), " "))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("found only %d files", files)
	}
}

// around is a part of a text with what is before and after it.
func around(text string, at []int) string {
	const more = 30
	return text[max(0, at[0]-more):min(len(text), at[1]+more)]
}
