package pages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// consoleBlock is a fenced block of commands, each behind "$ ", and their output.
var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// aCommand is a line in a block of another kind that a reader would type.
var aCommand = regexp.MustCompile(`(?m)^(\$ |sudo |(kubectl|helm|make|bin/\w+|vmapd|nft|go|git|curl|iptables|ip|sysctl|docker|sh|journalctl) [\w-]+( |$))`)

// The commands of each page work. Those that need a cluster or another machine are marked as untried.
func TestCommandsOfPagesWork(t *testing.T) {
	t.Parallel()
	root := filepath.Dir(vmapdtest.Testdata(t))
	commands := 0
	for _, page := range pages(t, root) {
		text := testaid.Read(t, filepath.Join(root, page))
		for _, block := range fencedBlock.FindAllString(text, -1) {
			kind, lines, _ := strings.Cut(strings.TrimPrefix(block, "```"), "\n")
			if kind != "console" && kind != "sh untried" && kind != "text" && aCommand.MatchString(lines) {
				t.Errorf("%s: commands are in a block \"console\", which this test runs, or \"sh untried\":\n%s", page, block)
			}
		}
		commands += strings.Count(text, "\n$ ")
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			checkCommands(t, root, text)
		})
	}
	if commands < 25 {
		t.Errorf("found only %d commands", commands)
	}
}

// tooLong are commands that would run this test again or take minutes; other tests cover them.
var tooLong = []string{"make demo", "make test"}

// checkCommands runs every command of a page in the repository's root and compares its
// output. A line of "…" stands for any lines, "…" within a line for any text.
func checkCommands(t *testing.T, root, page string) {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "vmapd")); err != nil {
		t.Fatal(err)
	}
	for _, block := range consoleBlock.FindAllStringSubmatch(page, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part+"\n", "\n")
			if slices.Contains(tooLong, command) {
				continue
			}
			t.Run(command, func(t *testing.T) {
				nettest.Need(t)
				// This test binary stands in for bin/vmapd, which may not be built.
				cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(command, "bin/vmapd", bin+"/vmapd"))
				cmd.Dir = root
				// The variables of a make that runs this test would change the output of another.
				cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
				got, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, got)
				}
				if !matches(want, string(got)) {
					t.Errorf("want:\n%s\ngot:\n%s", want, got)
				}
			})
		}
	}
}

// matches compares text with a pattern in which "…" stands for anything.
func matches(pattern, text string) bool {
	parts := strings.Split(strings.TrimSpace(pattern), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(strings.Trim(parts[i], "\n"))
	}
	return regexp.MustCompile(`(?s)\A` + strings.Join(parts, `.*`) + `\s*\z`).MatchString(strings.TrimSpace(text))
}

var (
	// figure is a number with a unit of what is measured, or a part of a number.
	figure = regexp.MustCompile(`\d[\d,.]*(?: of \d[\d,]*\d| (?:ms|s|MB|%)\b)`)
	// aSource are the last columns of a row of Evidence: commit and command.
	aSource = regexp.MustCompile("(?m)^\\| ([^|]*) \\|[^|]*\\| [^|]*\\b[0-9a-f]{7,8}\\b[^|]* \\| `[^|]*` \\|$")
)

// Each figure of the README is in Evidence, with the commit that recorded it and the command that repeats it.
func TestFiguresOfTheReadmeHaveEvidence(t *testing.T) {
	root := filepath.Dir(vmapdtest.Testdata(t))
	_, table, _ := strings.Cut(testaid.Read(t, root+"/cmd/vmapd/docs/evidence.md"), "\n## Figures of the README\n")
	table, _, _ = strings.Cut(table, "\n## ")
	known := map[string]bool{}
	for _, row := range aSource.FindAllStringSubmatch(table, -1) {
		for _, f := range figure.FindAllString(row[1], -1) {
			known[f] = true
		}
	}
	figures := figure.FindAllString(fencedBlock.ReplaceAllString(testaid.Read(t, root+"/README.md"), ""), -1)
	for _, f := range figures {
		if !known[f] {
			t.Errorf("README: %s is not among the figures of Evidence", f)
		}
	}
	if len(figures) < 10 {
		t.Errorf("README: found only %d figures", len(figures))
	}
}
