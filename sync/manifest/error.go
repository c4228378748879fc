package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// Error is an error in a manifest. Its text is one line, like
//
//	web.yaml:14: Service default/web: spec.ports.port: cannot use string as int32
type Error struct {
	File    string          // as given, or the given folder joined with the path below it
	Line    int             // of the document's first line, from 1; 0: the whole file
	Object  model.ObjectRef // as far as known: Kind may stand alone, or be empty
	Field   string          // path in the object, like "spec.ports.port"; may be empty
	Message string
	Err     error // an error of the file system; nil: an error in the manifest
}

// Error returns one line with the file, the object, the field and the message.
func (e Error) Error() string {
	if e.Err != nil {
		return model.OneLine("cannot read " + e.File + ": " + e.Message)
	}
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d", e.File, e.Line)
	}
	object := e.Object.Kind
	if e.Object.Name != "" {
		object = e.Object.String()
	}
	parts := slices.DeleteFunc([]string{place, object, e.Field, e.Message}, func(s string) bool { return s == "" })
	return short(model.OneLine(strings.Join(parts, ": ")))
}

// Unwrap returns Err, for errors.Is with fs.ErrNotExist.
func (e Error) Unwrap() error { return e.Err }

// short bounds the length of a line that quotes a manifest.
func short(s string) string {
	const most = 800
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
