package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Error is an error at one place of a manifest. Its text is one line, like
//
//	web.yaml:14: Service default/web: spec.ports[0].port: cannot use a string as a number
type Error struct {
	File    string          // as given, or the given folder joined with the path below it
	Line    int             // from 1; 0: the whole file
	Object  model.ObjectRef // as far as known: Kind may stand alone, or be empty
	Field   string          // path in the object, like "spec.ports[0].port"; may be empty
	Message string
	Err     error // an error of the file system; nil: an error in the manifest

	kept bool // objects of an earlier version of File stay in effect
}

// Error returns one line with the file, the object, the field and the message.
func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	switch {
	case e.Object.Name != "":
		b.WriteString(": " + e.Object.String())
	case e.Object.Kind != "":
		b.WriteString(": " + e.Object.Kind)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	b.WriteString(": " + e.Message)
	return model.OneLine(b.String())
}

// Unwrap returns Err, for errors.Is with fs.ErrNotExist.
func (e Error) Unwrap() error { return e.Err }

// quote returns a value from the file in quotes, short enough for an error.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")) + "..."
	}
	return strconv.Quote(s)
}
