package nodesetup

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// How full the table may be: from nearlyFull percent on it is told, and told again only
// after it was below relieved percent.
const (
	nearlyFull    = 90
	relieved      = 80
	watchInterval = 15 * time.Second
)

// TableUse returns how many connections the kernel tracks in this network namespace, and how
// many it would. A limit of 0 means no limit. Beyond the limit, the first packet of a
// connection is dropped ("nf_conntrack: table full, dropping packet").
func TableUse(o Options) (used, limit int, err error) {
	if used, err = o.readInt(fileCount); err != nil {
		return 0, 0, err
	}
	limit, err = o.readInt(fileMax)
	return used, limit, err
}

// WatchTable looks at the table every 15 s until ctx ends. It calls near when the table is
// full to 90 %, and again only after it had been below 80 %. While it can't be read,
// nothing is told.
func WatchTable(ctx context.Context, o Options, near func(used, limit int)) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	told := false
	for {
		if used, limit, err := TableUse(o); err == nil && limit > 0 {
			switch percent := int64(used) * 100 / int64(limit); {
			case percent >= nearlyFull && !told:
				told = true
				near(used, limit)
			case percent < relieved:
				told = false
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
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
