package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func printed(t *testing.T, text func(*Text)) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, InText, nil, text); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWrap(t *testing.T) {
	long := strings.Repeat("x", 80+5)
	for name, test := range map[string]struct{ text, first, others, want string }{
		"a short line stays":        {"a  b", "  ", "", "  a  b\n"},
		"nothing is one empty line": {"", "", "", "\n"},
		"80 columns are one line": {strings.Repeat("x", 78) + " y", "", "  ", strings.Repeat("x", 78) +
			" y\n"},
		"81 are two, without a space at the end": {strings.Repeat("x", 79) + " y", "", "  ", strings.Repeat("x", 79) +
			"\n  y\n"},
		"a word that is too long has its own line": {"a " + long + " b", "", "  ", "a\n  " + long + "\n  b\n"},
		"letters count, not bytes": {strings.Repeat("é", 78) + " é", "", "  ", strings.Repeat("é", 78) +
			" é\n"},
	} {
		if diff := cmp.Diff(test.want, Wrap(test.text, test.first, test.others)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLinesHaveFailuresFirstAndATotal(t *testing.T) {
	lines := []Line{
		{OK, "version", "v1", ""},
		{
			Warn, "clock", "the clock is 3 s behind that of the API server, which is more than one second",
			"run a time service",
		},
		{Fail, "rounds", "the last sync failed", "see the log"},
		{OK, "connection-retry", "Linux 6.18", ""},
	}
	want := `fail  rounds        the last sync failed
                    -> see the log
warn  clock         the clock is 3 s behind that of the API server, which is
                    more than one second
                    -> run a time service
ok    version       v1
ok    connection-retry Linux 6.18
1 failure, 1 warning, 2 ok
`
	if diff := cmp.Diff(want, printed(t, func(x *Text) { x.Lines(lines) })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	before := slices.Clone(lines)
	if bad := Bad(lines); len(bad) == len(lines) || !slices.Equal(lines, before) || lines[0].Name != "version" {
		t.Errorf("the caller's lines are others now: %v; those that are not ok: %v", lines, bad)
	}
}

func TestColoursAreNeverTheOnlySign(t *testing.T) {
	say := func(x *Text) {
		x.Lines([]Line{{Fail, "rounds", "failed", ""}})
		x.Table(Table{Rows: []Row{{Cells: []string{"web", "rejected"}, Level: Fail}}})
		x.Verdict(OK, "forwarded to %s", "10.0.0.1:80")
	}
	const red, green, end = "\x1b[31m", "\x1b[32m", "\x1b[0m"
	coloured := &Text{colours: true}
	say(coloured)
	want := red + "fail" + end + "  rounds        failed\n1 failure, 0 warnings, 0 ok\n" +
		"web  " + red + "rejected" + end + "\n" + green + "=> forwarded to 10.0.0.1:80" + end + "\n"
	if diff := cmp.Diff(want, coloured.out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	plain := strings.NewReplacer(red, "", green, "", end, "").Replace(want)
	if diff := cmp.Diff(plain, printed(t, say)); diff != "" {
		t.Errorf("without a terminal (-want +got):\n%s", diff)
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("CLICOLOR_FORCE", "1")
	if diff := cmp.Diff(want, printed(t, say)); diff != "" {
		t.Errorf("with CLICOLOR_FORCE=1 (-want +got):\n%s", diff)
	}
}

func TestTextOfObjectsBreaksNoLine(t *testing.T) {
	const evil = "a\nb\x1b[31m\u202e\tx"
	text := printed(t, func(x *Text) {
		x.Table(Table{Columns: []string{"NAME", "STATE"}, Rows: []Row{{Cells: []string{evil, evil}}}, Notes: []string{evil}})
		x.Lines([]Line{{Fail, "check", evil, evil}})
		x.Verdict(Fail, "%s", evil)
	})
	if n := strings.Count(text, "\n"); n != 7 {
		t.Errorf("%d lines, want 7:\n%s", n, text)
	}
	for _, c := range []string{"\x1b", "\u202e", "\t"} {
		if strings.Contains(text, c) {
			t.Errorf("%q is printed", c)
		}
	}
}

func TestWatchPrintsChangesAndDeletions(t *testing.T) {
	table := func(rows ...Row) []Table { return []Table{{Columns: []string{"NAME", "AGE", "STATE"}, Rows: rows}} }
	row := func(name, age, state string) Row { return Row{Cells: []string{name, age, state}} }
	var b strings.Builder
	w := Watcher{W: &b}
	for _, tables := range [][]Table{
		table(row("web", "1s", "forwarded"), row("db", "1s", "forwarded")),
		table(row("web", "1s", "forwarded"), row("db", "1s", "forwarded")),
		table(row("web", "0s", "rejected"), row("db", "1s", "forwarded")),
		table(row("web", "0s", "rejected")),
		table(row("web", "0s", "rejected")),
	} {
		if err := w.Print(nil, tables); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAME  AGE  STATE
web   1s   forwarded
db    1s   forwarded
- web  1s  forwarded
+ web  0s  rejected
- db  1s  forwarded
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFormat(t *testing.T) {
	var format Format
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFormat(f, &format)
	err := f.Parse([]string{"-o", "foo"})
	if err == nil || !strings.Contains(err.Error(), `unknown format "foo" (text, wide, json, yaml)`) || format != InText {
		t.Errorf("format %q, error %v", format, err)
	}
	var b strings.Builder
	if err := Print(&b, JSON, map[string]string{"to": "=> a"}, nil); err != nil || b.String() != "{\n  \"to\": \"=> "+
		"a\"\n}\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
