package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// groups are the control groups of a cluster: one of the same name in each hierarchy of version
// 1, or the one of version 2. Below it, system has the processes that the cluster starts, and
// each node's name the containers of that node.
type groups struct {
	name    string   // vmapd-NAME
	roots   []string // of the hierarchies
	leading string   // the root that says which processes there are
	unified bool     // version 2
}

const system = "system"

// findGroups looks for the machine's hierarchies.
func findGroups(name string) (groups, error) {
	g := groups{name: name}
	var stat unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &stat); err != nil {
		return g, fmt.Errorf("look for control groups in %s: %w", cgroupMount, err)
	}
	if stat.Type == unix.CGROUP2_SUPER_MAGIC {
		g.roots, g.leading, g.unified = []string{cgroupMount}, cgroupMount, true
		return g, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return g, fmt.Errorf("look for control groups: %w", err)
	}
	for _, e := range entries {
		root := filepath.Join(cgroupMount, e.Name())
		// Symbolic links are second names of hierarchies with several controllers. There may also be
		// one of version 2, without controllers.
		if e.IsDir() && unix.Statfs(root, &stat) == nil && (stat.Type == unix.CGROUP_SUPER_MAGIC || stat.Type == unix.CGROUP2_SUPER_MAGIC) {
			g.roots = append(g.roots, root)
		}
	}
	g.leading = filepath.Join(cgroupMount, "pids")
	if !slices.Contains(g.roots, g.leading) {
		return g, fmt.Errorf("no control groups: %s is not mounted", g.leading)
	}
	return g, nil
}

// make makes a group below that of the cluster, in all hierarchies.
func (g groups) make(child string) error {
	for _, root := range g.roots {
		for _, dir := range []string{filepath.Join(root, g.name), filepath.Join(root, g.name, child)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make control group: %w", err)
			}
			setUpGroup := passProcessors
			if g.unified {
				setUpGroup = passControllers
			}
			if err := setUpGroup(filepath.Dir(dir), dir); err != nil {
				return fmt.Errorf("set up control group %s: %w", dir, err)
			}
		}
	}
	return nil
}

// passProcessors gives a group of version 1 the processors and the memory of its parent. A new one
// has none, and takes no process so. In hierarchies without these controllers, it does nothing.
func passProcessors(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), data, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// passControllers lets a group of version 2 use those controllers of its parent that kubelet and runc
// use: kubelet refuses to work below a group that lacks one of the machine's.
func passControllers(parent, _ string) error {
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for c := range strings.FieldsSeq(string(controllers)) {
		if !slices.Contains([]string{"cpu", "cpuset", "hugetlb", "io", "memory", "pids"}, c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return err
		}
	}
	return nil
}

// start arranges that a command started next by this thread, which ends afterwards, is in the
// group system. The caller calls leave when the command has started.
func (g groups) start(cmd *exec.Cmd) (leave func(), err error) {
	dir := filepath.Join(g.leading, g.name, system)
	if !g.unified {
		// A thread can be in a group of version 1 without the rest of its process.
		tid := []byte(strconv.Itoa(unix.Gettid()))
		if err := os.WriteFile(filepath.Join(dir, "tasks"), tid, 0); err != nil {
			return nil, fmt.Errorf("enter control group: %w", err)
		}
		return func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open control group %s: %w", dir, err)
	}
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	return func() { unix.Close(fd) }, nil
}

// processes returns the processes in all groups.
func (g groups) processes() ([]int, error) {
	var pids []int
	err := filepath.WalkDir(filepath.Join(g.leading, g.name), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // it has just been removed
		}
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read control group %s: %w", g.name, err)
	}
	return pids, nil
}

// kill kills all processes, and removes the groups.
func (g groups) kill() error {
	const limit = 30 * time.Second
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		pids, err := g.processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
		if len(pids) == 0 {
			if err = g.remove(); err == nil {
				return nil
			}
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("end the processes %v in the control group %s: not within %v", pids, g.name, limit), err)
		}
	}
}

// remove removes the groups.
func (g groups) remove() error {
	for _, root := range g.roots {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(root, g.name), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		slices.Reverse(dirs) // children come after their parents
		for _, dir := range dirs {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove control group %s: %w", dir, err)
			}
		}
		if err != nil {
			return fmt.Errorf("remove control group %s: %w", g.name, err)
		}
	}
	return nil
}
