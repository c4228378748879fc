package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// recentFolder has session affinity as the kernel has it, in files of the process's network namespace.
const recentFolder = "/proc/net/xt_recent"

// Remembered returns the first of some endpoints that has a client of a service port with session affinity
// in its list, and how much longer; false if none has.
func (b *IPTables) Remembered(sp *model.ServicePort, endpoints []netip.AddrPort, client netip.Addr) (
	to netip.AddrPort, left time.Duration, ok bool, err error,
) {
	now, second, err := jiffies()
	if err != nil {
		return to, 0, false, err
	}
	for _, e := range endpoints {
		seen, ok, err := lastSeen(filepath.Join(recentFolder, iptables.RecentName(sp.Name, e)), client)
		if err != nil {
			return to, 0, false, err
		}
		age := time.Duration(now-min(seen, now)) * time.Second / time.Duration(second)
		if ok && age < sp.Affinity {
			return e, sp.Affinity - age, true, nil
		}
	}
	return to, 0, false, nil
}

// lastSeen returns when a list of xt_recent has seen a client, in jiffies.
func lastSeen(path string, client netip.Addr) (seen uint64, ok bool, err error) {
	list, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	for line := range strings.Lines(string(list)) {
		if a, last, valid := parseRecent(line); valid && a == client {
			return last, true, nil
		}
	}
	return 0, false, err
}

// parseRecent parses a line like "src=10.0.0.1 ttl: 64 last_seen: 4295 oldest_pkt: 1 4295" (recent_seq_show).
func parseRecent(line string) (client netip.Addr, seen uint64, ok bool) {
	var source string
	var ttl uint64
	if _, err := fmt.Sscanf(line, "src=%s ttl: %d last_seen: %d", &source, &ttl, &seen); err != nil {
		return client, 0, false
	}
	client, err := netip.ParseAddr(source)
	return client, seen, err == nil
}

// jiffies returns the kernel's count of ticks, and the number of them in a second. The coarse clocks have the
// resolution of a tick, and the count begins five minutes before it overflows 32 bits (INITIAL_JIFFIES).
func jiffies() (now, second uint64, err error) {
	var tick, since unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return 0, 0, fmt.Errorf("ask for the resolution of the kernel's clock: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		return 0, 0, fmt.Errorf("ask for the kernel's clock: %w", err)
	}
	second = uint64(time.Second) / uint64(tick.Nano())
	const before = 300 // seconds
	return uint64(uint32(-int32(before*second))) + uint64(since.Nano())*second/uint64(time.Second), second, nil
}
