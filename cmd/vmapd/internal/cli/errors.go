package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exitError is an error that was already printed.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is an error that the help of a command answers.
type usageError struct{ error }

// missing returns the error of an argument or a flag that is required.
func missing(what string) error { return usageError{fmt.Errorf("missing %s", what)} }

// flagError returns the error of a flag, without pflag's words about a value.
func flagError(_ *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		err = fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
	}
	return usageError{err}
}

// arguments accepts arguments with these names. Those in brackets are optional.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return usageError{fmt.Errorf("unexpected argument %q", args[len(names)])}
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return missing(names[len(args)])
		}
		return nil
	}
}

// unknownCommand returns cobra's error of an unknown command in one line.
func unknownCommand(err error) error {
	text, suggestions, found := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if found {
		text += "; did you mean " + strings.Join(strings.Fields(suggestions), " or ") + "?"
	}
	return usageError{errors.New(text)}
}
