package others

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/internal/nfnl"
)

// TableNames returns the names of all tables of a family. Without nf_tables there are none.
func TableNames(f model.Family) (names []string, err error) {
	conn, tables, err := openTables()
	if conn == nil {
		return nil, err
	}
	families := [...]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}
	for _, t := range tables {
		if t.Family == families[f] {
			names = append(names, t.Name)
		}
	}
	return names, conn.CloseLasting()
}

// openTables lists all tables. Without nf_tables, there is no connection either.
func openTables() (conn *nftables.Conn, tables []*nftables.Table, err error) {
	if conn, err = nftables.New(nftables.AsLasting()); err == nil {
		if tables, err = conn.ListTables(); err == nil {
			return conn, tables, nil
		}
		_ = conn.CloseLasting()
	}
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), nfnl.IsMissing(err):
		return nil, nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, nil, nfnl.ErrNotPermitted
	}
	return nil, nil, fmt.Errorf("list tables: %w", err)
}
