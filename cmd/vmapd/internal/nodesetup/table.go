package nodesetup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
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

// Sysctl reads a file below /proc/sys.
func Sysctl(file string) (string, error) { return Options{}.read("/proc/sys/" + file) }

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
