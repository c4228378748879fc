package cli

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
)

// ran is what a command printed.
type ran struct {
	code           int
	stdout, stderr string
}

func runVmapd(t *testing.T, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), args, nil, &stdout, &stderr)
	return ran{code, stdout.String(), stderr.String()}
}

// commands returns root and all commands below it, also the hidden ones.
func commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		all = append(all, commands(c)...)
	}
	return all
}

func TestHelpFitsInATerminal(t *testing.T) {
	root := cli.Command()
	root.InitDefaultHelpCmd()
	for _, c := range commands(root) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		got := runVmapd(t, args...)
		if c.Long == "" && !c.Hidden && c.Name() != "version" {
			t.Errorf("%s: the page Commands has no help", c.CommandPath())
		}
		const widest = 100 // of descriptions
		if got.code != 0 || got.stderr != "" || !strings.Contains(got.stdout, "\nUsage:\n  "+c.CommandPath()) {
			t.Errorf("vmapd %s: exit code %d, standard error %q, and:\n%s", strings.Join(args, " "), got.code, got.stderr,
				got.stdout)
		}
		for line := range strings.Lines(got.stdout) {
			line = strings.TrimSuffix(line, "\n")
			isFlag := strings.HasPrefix(strings.TrimSpace(line), "-")
			if n := utf8.RuneCountInString(line); n > widest && !isFlag || strings.Contains(line, "\t") {
				t.Errorf("vmapd %s: %d columns, or a tab: %q", strings.Join(args, " "), n, line)
			}
		}
	}
}

// The help of the daemon has each flag that has an effect, with all of its text, and no other.
func TestHelpHasEachFlag(t *testing.T) {
	words := strings.Join(strings.Fields(runVmapd(t, "--help").stdout), " ")
	cli.Command().Flags().VisitAll(func(f *pflag.Flag) {
		if has := strings.Contains(words, "--"+f.Name+" "); has == f.Hidden || f.Usage == "" {
			t.Errorf("--%s: hidden %v, in the help %v, text %q", f.Name, f.Hidden, has, f.Usage)
		} else if !f.Hidden && !strings.Contains(words, f.Usage) {
			t.Errorf("--%s: its text is not in the help: %s", f.Name, f.Usage)
		}
	})
}

// Errors of a start have one format, but for a log in JSON, of which those of the configuration are lines.
func TestErrorsOfTheStart(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"render --vmapd-confg=x":  "unknown flag: --vmapd-confg",
		"--nodeport-adresses=all": "unknown flag: --nodeport-adresses",
		"--oom-score-adj=high": `invalid argument "high" for "--oom-score-adj" flag: ` +
			`strconv.ParseInt: parsing "high": invalid syntax`,
		"--config=no-such-file":               "--config: open no-such-file: no such file or directory",
		"--from=x --kubeconfig=y":             "--from excludes --kubeconfig and --master",
		"--init-only --cluster-cidr=ten":      `--cluster-cidr: Invalid value: "ten": "ten" is not a CIDR`,
		"--write-config-to=/proc/no/such/one": "open /proc/no/such/one: no such file or directory",
	} {
		formats := []string{"", "--logging-format=json", "--logging-format json", "--logging-format=text"}
		if !strings.HasPrefix(want, "-") && !strings.HasPrefix(want, "open") { // of the command line
			formats = formats[:1]
		}
		for _, format := range formats {
			got := runVmapd(t, append(strings.Fields(format), strings.Fields(args)...)...)
			said := strings.TrimSuffix(got.stderr, "\n")
			said = said[strings.LastIndexByte(said, '\n')+1:]
			if strings.HasSuffix(format, "json") {
				line := struct{ Level, Err string }{}
				if err := json.Unmarshal([]byte(said), &line); err != nil || line.Level != "ERROR" {
					t.Errorf("vmapd %s %s: %v: %s", format, args, err, said)
				}
				said = "vmapd: " + line.Err
			}
			if got.code != 1 || said != "vmapd: "+want {
				t.Errorf("vmapd %s %s: exit code %d, and:\n%s\nwant %s", format, args, got.code, got.stderr, want)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	text := runVmapd(t, "version")
	for _, want := range []string{
		"vmapd     ", "commit    ", "date      ", "Go        " + runtime.Version() + "\n",
		"platform  " + runtime.GOOS + "/" + runtime.GOARCH + "\n",
	} {
		if text.code != 0 || !strings.Contains(text.stdout, want) {
			t.Errorf("vmapd version: exit code %d; want %q, got:\n%s", text.code, want, text.stdout)
		}
	}
	want := buildinfo.Current()
	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) },
	} {
		var got buildinfo.Build
		if err := decode([]byte(runVmapd(t, "version", "-o", format).stdout), &got); err != nil || got != want {
			t.Errorf("vmapd version -o %s (%v): want %+v, got %+v", format, err, want, got)
		}
	}
	if got := runVmapd(t, "version", "-o", "table"); got.code != 1 || !strings.Contains(got.stderr,
		`unknown format "table"`) {
		t.Errorf("an unknown format: exit code %d, and %s", got.code, got.stderr)
	}
	if got := runVmapd(t, "--version").stdout; got != "vmapd version "+want.String()+"\n" || !strings.Contains(got,
		want.Version) {
		t.Errorf("vmapd --version: %s", got)
	}
}
