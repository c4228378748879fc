package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// exitError is an error that was already printed.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is an error that the help of a command answers.
type usageError struct{ error }

// missing returns the error of an argument or a flag that is required.
func missing(what string) error { return usageError{fmt.Errorf("missing %s", what)} }

// flagError returns the error of a flag: of a command that is unknown, the flags are unknown, too.
func flagError(c *cobra.Command, err error) error {
	if c.HasSubCommands() {
		return cmp.Or(c.ValidateArgs(c.Flags().Args()), error(usageError{err}))
	}
	return usageError{err}
}

// arguments accepts arguments with these names. Those in brackets are optional. With subcommands, there are none.
func arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case c.HasSubCommands() && len(args) > 0:
			text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				text += "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usageError{errors.New(text)}
		case len(args) > len(names):
			return usageError{fmt.Errorf("unexpected argument %q", args[len(names)])}
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return missing(names[len(args)])
		}
		return nil
	}
}
