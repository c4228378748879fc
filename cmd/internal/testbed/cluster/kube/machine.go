package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// checkMachine returns an error that names everything that this machine lacks for a cluster.
func (c *Cluster) checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: kubelet and containerd mount file systems and make control groups")
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("missing, install with apt: %s", strings.Join(missing, " "))
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(c.Dir, &stat); err == nil && stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on an overlay file system, where containerd can't make others (--dir chooses another folder)", c.Dir)
	}
	return nil
}

// missingPackages returns the Debian packages of programs that this machine lacks.
func missingPackages() []string {
	var missing []string
	for _, need := range [][2]string{
		{"containerd", "containerd"},
		{"ctr", "containerd"},
		{"runc", "runc"},
		{filepath.Join(cniPrograms, "ptp"), "containernetworking-plugins"},
		{filepath.Join(cniPrograms, "portmap"), "containernetworking-plugins"},
		{"nsenter", "util-linux"},
		{"sleep", "coreutils"},
		{"nft", "nftables"},
		{"iptables-restore", "iptables"}, // of kubelet and the plugin portmap, too
		{"mount", "mount"},               // of kubelet
	} {
		if _, err := exec.LookPath(need[0]); err != nil && !slices.Contains(missing, need[1]) {
			missing = append(missing, need[1])
		}
	}
	return missing
}
