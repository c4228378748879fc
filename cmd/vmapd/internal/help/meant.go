package help

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// UnknownCommandError tells that a command has no subcommand of a name.
type UnknownCommandError struct {
	Name, Parent string
	Meant        []string // names that are similar
}

func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("unknown command %q for %q%s", e.Name, e.Parent, didYouMean(e.Meant))
}

// NoCommand is for the arguments of a command that has subcommands and takes nothing else.
func NoCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &UnknownCommandError{args[0], c.CommandPath(), c.SuggestionsFor(args[0])}
}

// flagError adds the names of similar flags to the error about an unknown one. Behind an unknown
// command, the flags are not to blame.
func flagError(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasAvailableSubCommands() && len(args) > 0 {
		return NoCommand(c, args)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	// A command knows which of its subcommands are similar to a name.
	var flags cobra.Command
	flags.SuggestionsMinimumDistance = 2
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	meant := flags.SuggestionsFor(unknown.GetSpecifiedName())
	for i := range meant {
		meant[i] = "--" + meant[i]
	}
	return fmt.Errorf("%w%s", err, didYouMean(meant))
}

// didYouMean returns the question after an error, or "".
func didYouMean(names []string) string {
	const most = 3
	names = names[:min(len(names), most)]
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}
