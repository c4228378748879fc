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
	c, err := thisKernel(0).dial()
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // no netfilter, no tables
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range model.Families {
		for _, name := range names {
			errs = append(errs, c.removeTable(f, name))
		}
	}
	return errors.Join(errors.Join(errs...), c.close())
}

// removeTable deletes a table with all that is in it, if it is there.
func (c *conn) removeTable(f model.Family, name string) error {
	m := c.newBatch(f, name)
	m.deleteTable()
	err := c.commit(&m)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), isMissing(err):
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("delete %v table %s: %w", f, name, ErrOwned)
	}
	return fmt.Errorf("delete %v table %s: %w", f, name, err)
}

// isMissing reports whether the kernel has no nf_tables, or not for a family.
func isMissing(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)
}
