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
	families := [...]nftables.TableFamily{model.IPv4: nftables.TableFamilyIPv4, model.IPv6: nftables.TableFamilyIPv6}
	var tables []*nftables.Table
	conn, err := nftables.New()
	if err == nil {
		tables, err = conn.ListTablesOfFamily(families[f])
	}
	switch {
	case IsMissing(err):
		return nil, nil
	case errors.Is(err, unix.EPERM):
		return nil, nfnl.ErrNotPermitted
	case err != nil:
		return nil, fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		names = append(names, t.Name)
	}
	return names, nil
}

// IsMissing reports whether an error of a list says that the kernel has no nf_tables, or not for a family.
func IsMissing(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || nfnl.IsMissing(err)
}
