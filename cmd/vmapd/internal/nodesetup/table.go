package nodesetup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// The watcher reports a table that is nearlyFull percent full, and reports it again only after
// it was below relieved percent.
const (
	nearlyFull    = 90
	relieved      = 80
	watchInterval = 15 * time.Second
)

// TableUse returns the number of connections that the kernel tracks in this network namespace, and its limit; 0 is no
// limit. At the limit, the kernel drops the first packet of a connection ("nf_conntrack: table full, dropping packet").
func TableUse(o Options) (used, limit int, err error) {
	if used, err = o.readInt(fileCount); err != nil {
		return 0, 0, err
	}
	limit, err = o.readInt(fileMax)
	return used, limit, err
}

// WatchTable reads the use of the table every 15 s until ctx ends. It calls near when the table
// is 90 % full, and again only after it was below 80 %. It ignores errors.
func WatchTable(ctx context.Context, o Options, near func(used, limit int)) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	warned := false
	for {
		if used, limit, err := TableUse(o); err == nil && limit > 0 {
			switch percent := int64(used) * 100 / int64(limit); {
			case percent >= nearlyFull && !warned:
				warned = true
				near(used, limit)
			case percent < relieved:
				warned = false
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Setting returns a setting of connection tracking in this network namespace, by its name below net/netfilter; false if
// the kernel has none of this name.
func Setting(o Options, name string) (value uint32, ok bool) {
	n, err := o.readInt(sysctls + name)
	return uint32(n), err == nil && name != "" && n >= 0
}

func (o Options) readInt(file string) (int, error) {
	s, err := o.read(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

// Unset returns the settings of c that the node does not have now. It writes nothing. Before
// connection tracking is loaded there are none.
func Unset(o Options, c Conntrack) []Write {
	if _, err := os.Stat(o.path(fileMax)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return Plan(c, o.facts())
}
