package trace

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxNamespaces bounds the network namespaces that are looked at.
const maxNamespaces = 4096

// FindNamespace returns the network namespace that has an address: that of a process, or one with a name in
// /run/netns. Without privilege, or without the processes of the node (hostPID), there may be none.
func FindNamespace(addr netip.Addr) (*os.File, error) {
	var paths []string
	for _, pattern := range []string{"/run/netns/*", "/proc/[0-9]*/ns/net"} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		paths = append(paths, found...)
	}
	seen := map[uint64]bool{}
	if own, err := os.Stat("/proc/self/ns/net"); err == nil {
		seen[inode(own)] = true
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || seen[inode(info)] || len(seen) > maxNamespaces {
			continue
		}
		seen[inode(info)] = true
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if has(f, path, addr) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("no network namespace with the address %v is visible here", addr)
}

func inode(info os.FileInfo) uint64 {
	s, _ := info.Sys().(*syscall.Stat_t) // always, on Linux
	return s.Ino
}

// has reports whether a namespace has an address.
func has(f *os.File, path string, addr netip.Addr) bool {
	if pid, ok := strings.CutPrefix(path, "/proc/"); ok {
		pid, _, _ = strings.Cut(pid, "/")
		if _, err := strconv.Atoi(pid); err == nil {
			return listed("/proc/"+pid+"/net", addr)
		}
	}
	found := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		found <- unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) == nil && listed("/proc/thread-self/net", addr)
	}()
	return <-found
}

// listed reports whether the files of a network namespace list an address as its own (proc(5)).
func listed(dir string, addr netip.Addr) bool {
	if addr.Is6() {
		text, err := os.ReadFile(filepath.Join(dir, "if_inet6"))
		raw := addr.As16()
		return err == nil && bytes.Contains(text, []byte(hex.EncodeToString(raw[:])))
	}
	text, err := os.ReadFile(filepath.Join(dir, "fib_trie"))
	if err != nil {
		return false
	}
	at := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if a, ok := strings.CutPrefix(line, "|-- "); ok {
			at = a
		}
		if at == addr.String() && strings.HasSuffix(line, "/32 host LOCAL") {
			return true
		}
	}
	return false
}
