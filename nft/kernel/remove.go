package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// RemoveTables deletes tables of both families by their names, whoever made them. What is
// not there, or not in this kernel, is no error.
func RemoveTables(names ...string) error {
	c, err := dial(0)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // no netfilter, no tables
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range model.Families {
		for _, name := range names {
			m, err := deleteTableMessage(f, name)
			if err == nil {
				err = c.exchange([]netlinkMessage{m}, true)
			}
			switch {
			case errors.Is(err, unix.EPERM):
				errs = append(errs, fmt.Errorf("delete %v table %s: %w", f, name, ErrOwned))
			case errors.Is(err, unix.ENOENT), isMissing(err):
			case err != nil:
				errs = append(errs, fmt.Errorf("delete %v table %s: %w", f, name, err))
			}
		}
	}
	return errors.Join(errors.Join(errs...), c.close())
}

// isMissing reports whether the kernel has no nf_tables, or not for a family.
func isMissing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}
