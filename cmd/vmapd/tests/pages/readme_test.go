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

func TestREADMECommandsWork(t *testing.T) {
	// These would run this test again or take long; other tests cover them.
	checkCommands(t, "README.md", 3, "make demo", "make test")
}

func TestCommandsOfPagesWork(t *testing.T) {
	t.Parallel()
	for page, atLeast := range map[string]int{
		"CONTRIBUTING.md": 1, "cmd/vmapd/docs/commands.md": 15, "cmd/vmapd/docs/internals.md": 4, "cmd/vmapd/docs/from-kube-proxy.md": 2,
	} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			checkCommands(t, page, atLeast)
		})
	}
}

// checkCommands runs every command of a page in the repository's root and compares its
// output. There must be at least so many commands. A line of "…" stands for any lines, "…"
// within a line for any text.
func checkCommands(t *testing.T, page string, atLeast int, but ...string) {
	t.Helper()
	nettest.Need(t)
	root := filepath.Dir(vmapdtest.Testdata(t))
	text := testaid.Read(t, filepath.Join(root, page))
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "vmapd")); err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part+"\n", "\n")
			commands++
			if slices.Contains(but, command) {
				continue
			}
			t.Run(command, func(t *testing.T) {
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
	if commands < atLeast {
		t.Errorf("found only %d commands in %s", commands, page)
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
