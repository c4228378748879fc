package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```")
	pageLink    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the headings of a page, as GitHub names them in links.
func anchors(page string) map[string]bool {
	of := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fencedBlock.ReplaceAllString(page, ""), -1) {
		of["#"+strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return of
}

// pages returns the paths of all pages of the repository, from its root.
func pages(t *testing.T, root string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case !d.IsDir() && filepath.Ext(path) == ".md":
			inRoot, err := filepath.Rel(root, path)
			list = append(list, inRoot)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Each link of a page to another file of the repository leads to a file that is there, and to a heading that it has.
func TestLinksOfPagesLead(t *testing.T) {
	root := filepath.Dir(vmapdtest.Testdata(t))
	links := 0
	for _, page := range pages(t, root) {
		text := fencedBlock.ReplaceAllString(testaid.Read(t, filepath.Join(root, page)), "")
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			if wrong := deadEnd(filepath.Join(root, page), m[1]); wrong != "" {
				t.Errorf("%s: the link to %s: %s", page, m[1], wrong)
			}
		}
	}
	if links < 50 {
		t.Errorf("found only %d links", links)
	}
}

// deadEnd returns what is wrong with a link, or "".
func deadEnd(page, link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), file)
	}
	if _, err := os.Stat(target); err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	if !anchors(string(text))["#"+anchor] {
		return "the page has no such heading"
	}
	return ""
}
