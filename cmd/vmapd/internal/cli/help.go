package cli

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// helpColumns is the width of the help about flags.
const helpColumns = 80

// usage prints the help of a command without the description. The flags that have an effect stand in sections, as those
// of Kubernetes' components: its own, then those of package config, by group.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
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
	var sections cliflag.NamedFlagSets
	for _, name := range append([]string{c.Name()}, config.Groups()...) {
		sections.FlagSet(name)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			sections.FlagSet(cmp.Or(config.Group(f), c.Name())).AddFlag(f)
		}
	})
	cliflag.PrintSections(w, sections, helpColumns)
	return nil
}
