package nodesetup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Unset returns the settings of c that the node does not have now. It writes nothing. Before
// connection tracking is loaded there are none.
func Unset(o Options, c Conntrack) []Write {
	if _, err := os.Stat(o.path(fileMax)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return slices.DeleteFunc(Plan(c, o.facts()), Write.enough)
}
