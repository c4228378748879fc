package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
)

// RemoveTables deletes tables of both families by their names. It is no error if a table is
// missing, or if the kernel has no nf_tables. Without permission, the error is [ErrNotPermitted]
// alone.
func RemoveTables(names ...string) error {
	return once(func(c *conn) error {
		var errs []error
		for _, f := range model.Families {
			for _, name := range names {
				err := c.removeTable(f, name)
				if errors.Is(err, ErrNotPermitted) {
					return ErrNotPermitted
				}
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

// removeTable deletes a table with all that is in it, if it is there.
func (c *conn) removeTable(f model.Family, name string) error {
	m := c.newBatch(f, name)
	m.deleteTable()
	err := c.commit(&m)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT):
		return nil // also without nf_tables, whose batches nobody takes (nfnetlink_rcv_batch)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("delete %v table %s: %w", f, name, ErrOwned)
	}
	return fmt.Errorf("delete %v table %s: %w", f, name, err)
}
