package lab

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Losses tells which packets the kernel has dropped in the namespace since it was made, by its own counters: those
// that are not zero, "udp: 12 RcvbufErrors". The queue between devices (softnet) is the whole machine's. It is
// empty if nothing was lost. What rules of nftables drop is not in it.
func (ns *Namespace) Losses() (string, error) {
	var found []string
	err := ns.Do(func() error {
		for _, read := range []func() ([]string, error){namedLosses, socketLosses, trackingLosses, queueLosses} {
			some, err := read()
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read what was lost in %s: %w", ns.name, err)
	}
	return strings.Join(found, ", "), nil
}

// rows returns the fields of a file of the namespace that this thread is in.
func rows(name string) ([][]string, error) {
	file, err := os.Open(filepath.Join("/proc/thread-self/net", name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all [][]string
	in := bufio.NewScanner(file)
	for in.Scan() {
		all = append(all, strings.Fields(in.Text()))
	}
	return all, in.Err()
}

// namedLosses reads snmp, where a line of names is followed by one of numbers.
func namedLosses() (found []string, err error) {
	all, err := rows("snmp")
	for i := 0; i+1 < len(all); i += 2 {
		for k, name := range all[i] {
			lost := strings.Contains(name, "bufErrors") || strings.HasSuffix(name, "Discards")
			if lost && all[i+1][k] != "0" {
				found = append(found, fmt.Sprintf("%s %s %s", all[i][0], all[i+1][k], name))
			}
		}
	}
	return found, err
}

// socketLosses reads what sockets had no room for, by their last column.
func socketLosses() (found []string, err error) {
	for _, kind := range []string{"raw", "udp", "udp6"} {
		all, err := rows(kind)
		if err != nil {
			return nil, err
		}
		for _, r := range all[1:] {
			if n := r[len(r)-1]; n != "0" {
				found = append(found, fmt.Sprintf("%s socket %s: %s", kind, r[1], n))
			}
		}
	}
	return found, nil
}

// trackingLosses reads connection tracking's counters, which have a line for each processor.
func trackingLosses() (found []string, err error) {
	all, err := rows("stat/nf_conntrack")
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for k, name := range all[0] {
		if !slices.Contains([]string{"insert_failed", "drop", "early_drop"}, name) {
			continue
		}
		n, err := hexSum(all[1:], k)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			found = append(found, fmt.Sprintf("connection tracking: %d %s", n, name))
		}
	}
	return found, nil
}

// queueLosses reads the queues of processors, whose second column is what they had no room for.
func queueLosses() ([]string, error) {
	all, err := rows("softnet_stat")
	if err != nil {
		return nil, err
	}
	n, err := hexSum(all, 1)
	if n == 0 {
		return nil, err
	}
	return []string{fmt.Sprintf("softnet: %d", n)}, err
}

func hexSum(rows [][]string, column int) (sum uint64, err error) {
	for _, r := range rows {
		n, err := strconv.ParseUint(r[column], 16, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
