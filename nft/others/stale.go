package others

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// RemoveStaleTraces removes tables of tracers that were killed on a kernel that keeps them (before Linux
// 5.12): those whose destination has timed out. A tracer that works still has it.
func RemoveStaleTraces() error {
	conn, err := nftables.New(nftables.AsLasting())
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // no nf_tables
	}
	if err != nil {
		return fmt.Errorf("open netlink connection: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		if !(Place{Table: t.Name}).IsOurs() || t.Flags&nftables.TableFlagOwner != 0 {
			continue
		}
		left, err := conn.GetSetElements(&nftables.Set{Table: t, Name: destinationSet})
		if err != nil || len(left) > 0 {
			continue // it works, or has just gone
		}
		conn.DelTable(t)
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the table %s of an earlier trace: %w", t.Name, err)
		}
	}
	return nil
}
