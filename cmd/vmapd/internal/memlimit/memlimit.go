// Package memlimit tells the Go runtime how much memory the process's control group allows.
//
// Without a limit, the runtime lets the heap grow to twice what is in use before it collects
// garbage, and the kernel kills a process that a little more frequent collection would have
// kept below its limit. The number of processors follows the control group by itself since Go
// 1.25.
package memlimit

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Part of the control group's limit is for memory that the runtime does not know: the program
// itself, and that of the kernel for sockets and, since Linux 5.17, for nftables' elements. With
// 5,000 Services of 50 endpoints, the kernel's was 20 MB.
const (
	reservePercent = 15
	leastReserve   = 24 << 20 // but no more than half
)

// Limit is the memory limit of a control group.
type Limit struct {
	Bytes int64
	File  string // where it stands
}

// Runtime returns the limit for the Go runtime.
func (l Limit) Runtime() int64 {
	return l.Bytes - max(l.Bytes/100*reservePercent, min(leastReserve, l.Bytes/2))
}

// Apply sets the runtime's memory limit. It returns nil, and does nothing, if the environment
// sets GOMEMLIMIT or there is no limit.
func Apply() (*Limit, error) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return nil, nil //nolint:nilnil // as documented
	}
	l, err := Read(os.DirFS("/"))
	if l != nil {
		debug.SetMemoryLimit(l.Runtime())
	}
	return l, err
}

// Read returns the lowest limit of this process's control group and of those around it, of
// version 1 and 2 (cgroups(7)); nil if there is none. root is the file system.
func Read(root fs.FS) (*Limit, error) {
	groups, err := readGroups(root)
	if err != nil {
		return nil, err
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find the control group's memory limit: %w", err)
	}
	var lowest *Limit
	for lines := bufio.NewScanner(bytes.NewReader(mounts)); lines.Scan(); {
		m, ok := parseMount(lines.Text())
		group, member := groups[m.version]
		if !ok || !member {
			continue
		}
		for _, l := range m.limits(root, group) {
			if lowest == nil || l.Bytes < lowest.Bytes {
				lowest = &l
			}
		}
	}
	return lowest, nil
}

// Versions of control groups.
const (
	v1 = 1
	v2 = 2
)

// readGroups returns the paths of the process's control groups for memory, by version. A line
// is like "4:memory:/kubepods/pod1", or "0::/kubepods/pod1" for version 2.
func readGroups(root fs.FS) (map[int]string, error) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find the control group: %w", err)
	}
	groups := map[int]string{}
	for line := range strings.Lines(string(text)) {
		const fields = 3
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", fields)
		switch {
		case len(f) < fields:
		case f[0] == "0":
			groups[v2] = f[2]
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			groups[v1] = f[2]
		}
	}
	return groups, nil
}

// mount is a mounted hierarchy of control groups.
type mount struct {
	version  int
	root, at string // the control group that is mounted, and where
}

// parseMount reads a line of mountinfo (proc_pid_mountinfo(5)), like
// "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw".
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	f, kind := strings.Fields(before), strings.Fields(after)
	const rootField, atField, optionsField = 3, 4, 2
	if len(f) <= atField || len(kind) <= optionsField {
		return m, false
	}
	m.root, m.at = f[rootField], f[atField]
	switch kind[0] {
	case "cgroup2":
		m.version = v2
	case "cgroup":
		m.version = v1
		return m, slices.Contains(strings.Split(kind[optionsField], ","), "memory")
	}
	return m, m.version != 0
}

// limits returns the limits of a control group and of those around it, as far as they are
// mounted. In a container, the mount's root may be the control group itself.
func (m mount) limits(root fs.FS, group string) (list []Limit) {
	inside, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !ok {
		inside = ""
	}
	files := []string{"memory.max", "memory.high"}
	if m.version == v1 {
		files = []string{"memory.limit_in_bytes"}
	}
	for dir := path.Join("/", inside); ; dir = path.Dir(dir) {
		for _, name := range files {
			file := path.Join(m.at, dir, name)
			text, err := fs.ReadFile(root, strings.TrimPrefix(file, "/"))
			if err != nil {
				continue // the root has none
			}
			if n, ok := parseLimit(string(text)); ok {
				list = append(list, Limit{n, file})
			}
		}
		if dir == "/" {
			return list
		}
	}
}

// parseLimit reads a limit. Without one, version 2 has "max", and version 1 the greatest number
// of pages.
func parseLimit(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	const none = math.MaxInt64 / 2
	return n, err == nil && n > 0 && n < none
}
