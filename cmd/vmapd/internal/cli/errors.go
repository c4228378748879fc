package cli

import "fmt"

// exitError is an error that was already printed.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// missing returns the error of an argument or a flag that is required.
func missing(what string) error { return fmt.Errorf("missing %s", what) }
