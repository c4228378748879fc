// Command lock prints the lock file of packages of Debian's: for each processor, the packages
// and all that they depend on, with the checksums of a suite with a signature that apt has verified.
//
//	lock iptables ipset > packages.lock
//
// cmd/internal/release downloads and verifies what the file says, without apt.
package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/debian"
)

func main() {
	runtime.LockOSThread() // see debian.Command
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lock:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, packages []string) error {
	const suite, mirror = "trixie", debian.Mirror
	dir, err := os.MkdirTemp("", "vmapd-lock-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var lines []string
	for _, goarch := range []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"} { // those of Kubernetes' nodes
		a := debian.Archive{Dir: dir, Suites: []string{suite}, Architecture: debian.Architecture(goarch)}
		if err := a.Update(ctx); err != nil {
			return err
		}
		args := []string{"-qq", "--print-uris", "--no-install-recommends", "-o", "Acquire::ForceHash=sha256", "install"}
		list, err := a.Apt(ctx, dir, "apt-get", append(args, packages...)...)
		if err != nil {
			return err
		}
		found, err := parse(list, mirror, goarch)
		if err != nil {
			return err
		}
		lines = append(lines, found...)
	}
	slices.Sort(lines)
	now := time.Now().UTC()
	const again = `"make -C cmd/internal/testbed images-lock" writes this file anew.`
	fmt.Printf("# %s and what they depend on, of Debian's suite %s; %s\n", strings.Join(packages, ", "), suite, again)
	fmt.Printf("date %s\nmirror %s/debian\n", now.Format(time.DateOnly), mirror)
	fmt.Printf("mirror http://snapshot.debian.org/archive/debian/%s\n", now.Format("20060102T150405Z"))
	fmt.Println("# processor, package, version, SHA-256, path on the mirror")
	_, err = fmt.Println(strings.Join(lines, "\n"))
	return err
}

// parse reads lines such as 'URL' FILE SIZE SHA256:SUM.
func parse(list, mirror, goarch string) (lines []string, err error) {
	for line := range strings.Lines(list) {
		m := regexp.MustCompile(`^'([^']+)' (\S+) \d+ SHA256:([0-9a-f]{64})\s*$`).FindStringSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("apt-get printed %q, and no URL with a checksum by SHA-256", line)
		}
		file, ok := strings.CutPrefix(m[1], mirror+"/debian/")
		if !ok {
			return nil, fmt.Errorf("%s is not on the mirror", m[1])
		}
		// NAME_VERSION_ARCHITECTURE.deb, where a colon of the version is %3a.
		parts := strings.Split(strings.TrimSuffix(filepath.Base(m[2]), path.Ext(m[2])), "_")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%s is no name of a package", m[2])
		}
		version := strings.ReplaceAll(parts[1], "%3a", ":")
		lines = append(lines, strings.Join([]string{goarch, parts[0], version, m[3], file}, " "))
	}
	return lines, nil
}
