package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// failure is an error in a file, in one line of bounded length: it quotes what is in the file.
func failure(text string) error { return errors.New(short(model.OneLine(text))) }

func short(s string) string {
	const most = 800
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// unreadable is an error of the file system.
func unreadable(path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // its path may be one in a folder
	}
	return fmt.Errorf("cannot read %s: %w", model.OneLine(path), err)
}
