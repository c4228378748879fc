package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/model"
)

// Format is the value of --output.
type Format string

// The formats. Wide is text with further columns.
const (
	InText Format = "text"
	Wide   Format = "wide"
	JSON   Format = "json"
	YAML   Format = "yaml"
)

// AddFormat adds the flag --output to a command.
func AddFormat(f *pflag.FlagSet, format *Format) {
	*format = InText
	f.VarP(format, "output", "o", "format of the output: text, wide, json or yaml")
}

// Set implements [pflag.Value].
func (f *Format) Set(text string) error {
	if !slices.Contains([]Format{InText, Wide, JSON, YAML}, Format(text)) {
		return fmt.Errorf("unknown format %q (text, wide, json, yaml)", text)
	}
	*f = Format(text)
	return nil
}

func (f *Format) String() string { return string(*f) }

// Type implements [pflag.Value].
func (*Format) Type() string { return "format" }

// Complain writes an error or a warning to standard error: each line of it begins with the program's name.
func Complain(stderr io.Writer, text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			fmt.Fprintf(stderr, "vmapd: %s\n", line)
		}
	}
}

// Print writes a value: as JSON, as YAML, or as the text that a function makes.
func Print(w io.Writer, format Format, value any, text func(*Text)) error {
	t := newText(w)
	switch format {
	case JSON:
		enc := json.NewEncoder(&t.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // "=>" stays readable
		if err := enc.Encode(value); err != nil {
			return err
		}
	case YAML:
		b, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		t.out.Write(b)
	case InText, Wide, "":
		text(t)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

// Outcome is what happens to a connection, in the words of all commands.
type Outcome string

// The outcomes.
const (
	Forwarded  Outcome = "forwarded"     // to an endpoint
	Rejected   Outcome = "rejected"      // with a TCP reset or an ICMP error
	Dropped    Outcome = "dropped"       // without an answer
	NotService Outcome = "not a Service" // no Service has the address and port
)

// OutcomeOf returns the word for a verdict.
func OutcomeOf(v model.Verdict) Outcome {
	return [...]Outcome{
		model.NotOurs: NotService, model.Forwarded: Forwarded, model.Rejected: Rejected, model.Dropped: Dropped,
	}[v]
}

// OfAction returns the word for what a Service does to connections to one of its addresses.
func OfAction(a model.Action) Outcome {
	return [...]Outcome{model.Forward: Forwarded, model.Reject: Rejected, model.Drop: Dropped}[a]
}

// Level is how bad a line or a row is.
type Level string

// The levels, the worst first. The zero value has no level.
const (
	Fail Level = "fail" // connections fail, or the node's rules are out of date
	Warn Level = "warn" // some connections may fail, or will when something else changes
	OK   Level = "ok"
)

// Level is how bad an outcome is for the client.
func (o Outcome) Level() Level {
	return map[Outcome]Level{Forwarded: OK, Rejected: Fail, Dropped: Fail}[o]
}

// Rank is lower for worse levels.
func (l Level) Rank() int { return map[Level]int{Fail: -2, Warn: -1}[l] }

// Worse returns the worse of two levels.
func Worse(a, b Level) Level {
	if b.Rank() < a.Rank() {
		return b
	}
	return a
}

// Age returns the time since t as kubectl prints it; "" for the zero time.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

// Plural returns a number with a noun.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// First returns the first elements of a list, and that there are more; most is 0 for all.
func First(list []string, most int) []string {
	if more := len(list) - most; most > 0 && more > 0 {
		return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", more))
	}
	return list
}

// List is First as a text.
func List[T any](list []T, most int) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(First(texts, most), ", ")
}
