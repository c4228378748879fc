package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/xtables"
	"github.com/vmapd/vmapd/model"
)

// legacyFamily is the kernel's interface to the tables of iptables-legacy of a family. Any socket
// of the family will do, with NET_ADMIN.
type legacyFamily struct {
	family        model.Family
	domain, level int
	names         string // the file with the tables that exist in this network namespace
}

var legacyFamilies = [...]legacyFamily{
	model.IPv4: {model.IPv4, unix.AF_INET, unix.IPPROTO_IP, "/proc/thread-self/net/ip_tables_names"},
	model.IPv6: {model.IPv6, unix.AF_INET6, unix.IPPROTO_IPV6, "/proc/thread-self/net/ip6_tables_names"},
}

// Options of the sockets: IPT_SO_… and IP6T_SO_… are the same.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES
)

// bits64: the layout of the structures is that of 64-bit machines.
const bits64 = 64

// tablePasses is how often something is tried that others may have changed meanwhile.
const tablePasses = 3

// sharePerTable is the part of the memory limit that one table may take: the kernel gives it in one
// piece, and a process that is killed for it would try it again at its next start.
const sharePerTable = 2

// LegacyTables returns the tables of iptables-legacy of a family that may drop packets, which nat does not,
// except those with more entries than most: their names are in large.
func LegacyTables(f model.Family, most int) (tables []*xtables.Table, large []string, err error) {
	err = eachLegacyTable(f, func(s legacySocket, table string) error {
		if table == "nat" {
			return nil
		}
		info, err := s.info(table)
		if err != nil {
			return err
		}
		if int(info.NumEntries) > most {
			large = append(large, table)
			return nil
		}
		t, err := s.read(table)
		if err == nil {
			tables = append(tables, t)
		}
		return err
	})
	return tables, large, err
}

// eachLegacyTable calls do with each table that exists. It does not make the kernel load any.
func eachLegacyTable(f model.Family, do func(s legacySocket, table string) error) error {
	l := legacyFamilies[f]
	names, err := os.ReadFile(l.names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the kernel has no iptables-legacy
	}
	if err != nil {
		return fmt.Errorf("list the %v tables of iptables-legacy: %w", f, err)
	}
	if len(names) == 0 {
		return nil
	}
	if strconv.IntSize != bits64 {
		return errors.New("iptables-legacy: only on a machine of 64 bits")
	}
	fd, err := unix.Socket(l.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	var errs []error
	for table := range strings.FieldsSeq(string(names)) {
		if err := do(legacySocket{l, fd}, table); err != nil {
			errs = append(errs, fmt.Errorf("%v table %s of iptables-legacy: %w", f, table, err))
		}
	}
	return errors.Join(errs...)
}

// legacySocket is a socket through which the tables are read and written.
type legacySocket struct {
	legacyFamily
	fd int
}

func (s legacySocket) info(table string) (info xtables.Info, err error) {
	copy(info.Name[:len(info.Name)-1], table)
	return info, s.get(getInfo, unsafe.Pointer(&info), uint32(unsafe.Sizeof(info)))
}

func (s legacySocket) get(option uintptr, value unsafe.Pointer, size uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.level), option, uintptr(value), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// read returns a table.
func (s legacySocket) read(table string) (t *xtables.Table, err error) {
	for range tablePasses {
		t = &xtables.Table{Family: s.family}
		if t.Info, err = s.info(table); err != nil {
			break
		}
		if limit := debug.SetMemoryLimit(-1); int64(t.Size) > limit/sharePerTable {
			return nil, fmt.Errorf("its %d rules take %d MB, which is too much for a memory limit of %d MB", t.NumEntries, t.Size>>20, limit>>20)
		}
		const header = 40 // struct ipt_get_entries
		b := make([]byte, header+int(t.Size))
		copy(b, t.Name[:])
		binary.NativeEndian.PutUint32(b[len(t.Name):], t.Size)
		err = s.get(getEntries, unsafe.Pointer(&b[0]), uint32(len(b)))
		t.Entries = b[header:]
		if !errors.Is(err, unix.EAGAIN) { // its size changed meanwhile
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return t, nil
}
