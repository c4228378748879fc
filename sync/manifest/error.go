package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// failure is an error in a file, in one line of bounded length: it quotes what is in the file.
func failure(text string) error {
	const most = 800
	if text = model.OneLine(text); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return errors.New(text)
}

// unreadable is an error of the file system.
func unreadable(path string, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err // its path may be one in a folder
	}
	return fmt.Errorf("cannot read %s: %w", model.OneLine(path), err)
}
