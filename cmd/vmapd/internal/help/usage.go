package help

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// Columns is the longest line of any help.
const Columns = 80

// Indents of a flag, and of its text.
const (
	flagIndent = "  "
	textIndent = "        "
)

// Install makes root and its subcommands print help as this package has it, and name what an
// unknown flag may have been meant to be.
func Install(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { _, _ = io.WriteString(c.OutOrStdout(), Text(c)) })
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), usage(c))
		return err
	})
	root.SetFlagErrorFunc(flagError)
}

// Text returns the help of a command.
func Text(c *cobra.Command) string {
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	return wrapText(about) + "\n" + usage(c)
}

// usage returns the help without the description.
func usage(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		b.WriteString(wrap(c.UseLine(), "  ", "      "))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n\nCommands:\n", c.CommandPath())
		names := 0
		for _, sub := range c.Commands() {
			names = max(names, len(sub.Name()))
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				b.WriteString(wrap(fmt.Sprintf("%-*s", names, sub.Name())+"  "+sub.Short, "  ", strings.Repeat(" ", names+4)))
			}
		}
	}
	writeFlags(&b, c.LocalFlags())
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" describes a command.\n", c.CommandPath())
	}
	return b.String()
}

// writeFlags appends the flags that are not hidden, in groups.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	groups := map[string][]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			g := config.Group(f)
			groups[g] = append(groups[g], f)
		}
	})
	for _, title := range append([]string{""}, config.Groups()...) {
		if len(groups[title]) == 0 {
			continue
		}
		heading := title
		if title == "" {
			heading = "Flags"
		}
		fmt.Fprintf(b, "\n%s:\n", heading)
		for _, f := range groups[title] {
			b.WriteString(describe(f))
		}
	}
}

// describe returns the lines about a flag.
func describe(f *pflag.Flag) string {
	kind, text := pflag.UnquoteUsage(f)
	switch kind {
	case "stringArray", "Level":
		kind = map[string]string{"stringArray": "string", "Level": "number"}[kind]
	case "int32", "float32":
		kind = "number"
	case "mapStringBool":
		kind = "NAME=BOOL,..."
	}
	head := flagIndent
	if f.Shorthand != "" {
		head += "-" + f.Shorthand + ", "
	}
	head += strings.TrimRight("--"+f.Name+" "+kind, " ")
	switch {
	case f.DefValue == "", f.DefValue == "0", f.DefValue == "0s", f.DefValue == "[]", f.DefValue == "false":
	default:
		text += " (default " + f.DefValue + ")"
	}
	return head + "\n" + wrap(text, textIndent, textIndent)
}

// wrapText wraps paragraphs. A line that begins with a space stays as it is: it is an example.
func wrapText(text string) string {
	var b strings.Builder
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(wrap(strings.Join(paragraph, " "), "", ""))
		}
		paragraph = nil
	}
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			flush()
			b.WriteString(line + "\n")
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return b.String()
}

// wrap breaks text at spaces, so that no line has more than Columns where the words permit it.
// Spaces within a line stay.
func wrap(text, first, others string) string {
	var b strings.Builder
	indent := first
	for {
		room := Columns - utf8.RuneCountInString(indent)
		line, rest := text, ""
		if r := []rune(text); len(r) > room {
			cut := strings.LastIndexByte(string(r[:room+1]), ' ')
			if cut <= 0 {
				cut = strings.IndexByte(text, ' ')
			}
			if cut > 0 {
				line, rest = text[:cut], strings.TrimLeft(text[cut:], " ")
			}
		}
		b.WriteString(indent + strings.TrimRight(line, " ") + "\n")
		if rest == "" {
			return b.String()
		}
		text, indent = rest, others
	}
}
