package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

const completionLong = `Completion prints a script that lets a shell complete vmapd's commands and flags.

  source <(vmapd completion bash)        with the package bash-completion
  source <(vmapd completion zsh)         after "autoload -U compinit; compinit"
  vmapd completion fish | source
  vmapd completion powershell | Out-String | Invoke-Expression

These are for the running shell; for new ones, the line belongs into the shell's start-up
file.`

// completionScripts write the script of a shell, with descriptions.
var completionScripts = map[string]func(*cobra.Command, io.Writer) error{
	"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
	"zsh":        (*cobra.Command).GenZshCompletion,
	"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
}

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion {bash | zsh | fish | powershell}",
		Short:     "Print a script for a shell that completes commands and flags",
		Long:      completionLong,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			script, ok := completionScripts[args[0]]
			if !ok {
				return fmt.Errorf("%q is none of the shells bash, zsh, fish and powershell", args[0])
			}
			return script(cmd.Root(), cmd.OutOrStdout())
		},
	}
}
