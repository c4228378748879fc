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
func checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root: kubelet and containerd mount file systems and make control groups")
	}
	if missing := missingPackages(); len(missing) > 0 {
		return fmt.Errorf("missing, install with apt: %s", strings.Join(missing, " "))
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

// checkSpace returns an error if the file system of the cluster's folder has too little space
// for the images on all nodes, where each is stored packed and unpacked, and for some data.
func (c *Cluster) checkSpace() error {
	const data = 1 << 30
	archives, err := c.ImageArchives()
	if err != nil {
		return err
	}
	var images int64
	for _, a := range archives {
		info, err := os.Stat(a)
		if err != nil {
			return err
		}
		images += info.Size()
	}
	need := data + 2*images*int64(c.Config.Nodes)
	var stat unix.Statfs_t
	if err := unix.Statfs(c.Dir, &stat); err != nil {
		return fmt.Errorf("look for space in %s: %w", c.Dir, err)
	}
	if stat.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on an overlay file system, where containerd can't make others (--dir chooses another folder)", c.Dir)
	}
	if free := int64(stat.Bavail) * int64(stat.Bsize); free < need { //nolint:unconvert // s390x has another type
		return fmt.Errorf("%s has %d MiB free, and the cluster needs %d MiB (--dir chooses another folder)", c.Dir, free>>20, need>>20)
	}
	return nil
}
