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

// writeCompletion writes the script of a shell, with descriptions.
func writeCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	case "powershell":
		return root.GenPowerShellCompletionWithDesc(w)
	}
	return fmt.Errorf("%q is none of the shells bash, zsh, fish and powershell", shell)
}

func newCompletionCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "completion {bash | zsh | fish | powershell}",
		Short:     "Print a script for a shell that completes commands and flags",
		Long:      completionLong,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeCompletion(cmd.Root(), args[0], cmd.OutOrStdout())
		},
	}
}
