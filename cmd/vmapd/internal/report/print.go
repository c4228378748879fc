package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
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
