package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
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
	getInfo     = 64 // IPT_SO_GET_INFO
	getEntries  = 65 // IPT_SO_GET_ENTRIES
	setReplace  = 64 // IPT_SO_SET_REPLACE
	addCounters = 65 // IPT_SO_SET_ADD_COUNTERS
)

// bits64: the layout of the structures is that of 64-bit machines.
const bits64 = 64

// xt_counters are packets and bytes.
const counterSize = 16

// xtablesLock is the lock that all users of iptables share; a container must have it mounted.
const xtablesLock = "/run/xtables.lock"

// tablePasses is how often something is tried that others may have changed meanwhile.
const tablePasses = 3

// sharePerTable is the part of the memory limit that one table may take: the kernel gives it in one
// piece, and a process that is killed for it would try it again at its next start.
const sharePerTable = 2

// legacyChains returns the names of all chains of iptables-legacy that are not built in.
func legacyChains(f model.Family) ([]string, error) {
	var all []string
	err := eachLegacyTable(f, func(s legacySocket, table string) error {
		t, err := s.read(table)
		if err != nil {
			return err
		}
		names, err := t.Chains()
		all = append(all, names...)
		return err
	})
	return all, err
}

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

// legacySizes returns a number that changes with the rules of iptables-legacy, without reading
// them: their number and size.
func legacySizes(f model.Family) (sum string, err error) {
	err = eachLegacyTable(f, func(s legacySocket, table string) error {
		info, err := s.info(table)
		sum += fmt.Sprintf("%s %d %d\n", table, info.NumEntries, info.Size)
		return err
	})
	return sum, err
}

// removeLegacyChains removes chains from all tables of iptables-legacy, and the rules that lead
// there. Each table changes at once.
func removeLegacyChains(f model.Family, theirs func(chain string) bool) error {
	var unlock func()
	defer func() {
		if unlock != nil {
			unlock()
		}
	}()
	return eachLegacyTable(f, func(s legacySocket, table string) (err error) {
		if unlock == nil { // only where there are tables
			if unlock, err = lockXtables(); err != nil {
				return err
			}
		}
		// With a lock, nobody changes the table meanwhile. Without, the kernel refuses if the
		// number of rules has changed.
		for range tablePasses {
			if err = s.removeChains(table, theirs); !errors.Is(err, unix.EAGAIN) {
				break
			}
		}
		return err
	})
}

// lockXtables takes the lock of iptables. Where the file can't be opened, there is nobody in this
// container to lock out.
func lockXtables() (unlock func(), err error) {
	const perm = 0o600
	f, err := os.OpenFile(xtablesLock, os.O_CREATE|os.O_RDONLY, perm)
	if err != nil {
		return func() {}, nil //nolint:nilerr // see above
	}
	const pause = 20 * time.Millisecond
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(pause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("another program holds the lock %s: %w", xtablesLock, err)
		}
	}
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

func (s legacySocket) set(option uintptr, value []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), uintptr(s.level), option, uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0)
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

func (s legacySocket) removeChains(table string, theirs func(chain string) bool) error {
	t, err := s.read(table)
	if err != nil {
		return err
	}
	rest, kept, err := t.Without(theirs)
	if err != nil || rest == nil {
		return err
	}
	counters, err := s.replace(rest, int(t.NumEntries))
	if err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	// A table that is replaced counts from 0 on.
	const header = 40 // struct xt_counters_info
	b := make([]byte, header, header+len(kept)*counterSize)
	copy(b, rest.Name[:])
	binary.NativeEndian.PutUint32(b[len(rest.Name):], uint32(len(kept)))
	for _, i := range kept {
		b = append(b, counters[i*counterSize:(i+1)*counterSize]...)
	}
	if err := s.set(addCounters, b); err != nil {
		return fmt.Errorf("restore the counters: %w", err)
	}
	return nil
}

// replace replaces a table of so many entries, and returns their counters.
func (s legacySocket) replace(t *xtables.Table, entries int) (counters []byte, err error) {
	const countersAt, header = 88, 96 // in struct ipt_replace, with pointers of 64 bits
	counters = make([]byte, entries*counterSize)
	var pinned runtime.Pinner
	pinned.Pin(&counters[0])
	defer pinned.Unpin()
	b := make([]byte, 0, header+len(t.Entries))
	b = append(b, t.Name[:]...)
	for _, v := range []uint32{t.ValidHooks, t.NumEntries, t.Size} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	for _, v := range append(t.HookEntry[:], t.Underflow[:]...) {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	b = binary.NativeEndian.AppendUint32(b, uint32(entries))
	b = b[:countersAt] // aligned
	b = binary.NativeEndian.AppendUint64(b, uint64(uintptr(unsafe.Pointer(&counters[0]))))
	b = append(b, t.Entries...)
	return counters, s.set(setReplace, b)
}
