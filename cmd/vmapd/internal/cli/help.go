package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// helpColumns is the width of the help about flags.
const helpColumns = 80

// setHelp makes root and its commands print their flags in sections, as Kubernetes' components do. "vmapd help" of an
// unknown command is an error.
func setHelp(root *cobra.Command) {
	root.SetUsageFunc(func(c *cobra.Command) error {
		printUsage(c.OutOrStderr(), c)
		return nil
	})
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		about := c.Long
		if about == "" {
			about = c.Short + "."
		}
		fmt.Fprintf(c.OutOrStdout(), "%s\n\n", about)
		printUsage(c.OutOrStdout(), c)
	})
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		RunE: func(c *cobra.Command, args []string) error {
			about, _, err := c.Root().Find(args)
			if err != nil {
				return unknownCommand(err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	})
}

// printUsage prints the help without the description.
func printUsage(w io.Writer, c *cobra.Command) {
	fmt.Fprintln(w, "Usage:")
	if c.Runnable() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n\nCommands:\n", c.CommandPath())
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	cliflag.PrintSections(w, sections(c), helpColumns)
}

// sections are the flags of a command that have an effect: its own, then those of package config, by group.
func sections(c *cobra.Command) (all cliflag.NamedFlagSets) {
	for _, name := range append([]string{c.Name()}, config.Groups()...) {
		all.FlagSet(name)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch group := config.Group(f); {
		case f.Hidden:
		case group == "":
			all.FlagSet(c.Name()).AddFlag(f)
		default:
			all.FlagSet(group).AddFlag(f)
		}
	})
	return all
}
