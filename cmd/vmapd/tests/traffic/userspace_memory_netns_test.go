package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Ten thousand open connections to Services, each of which has carried data in both directions and is idle, take less
// than 250 MB of the daemon, and none of them ends. Root raises the limit of open files for that. Where nobody
// may, there are fewer connections, and the memory of ten thousand is computed from them.
func TestTenThousandConnectionsInUserspace(t *testing.T) {
	const many, most = 10_000, 250 << 20
	n := int(min(many, raiseOpenFiles(t, 8*many)*2/15-400)) // two fifteenths are the limit of connections
	w := labtest.New(t)
	for _, ns := range []*lab.Namespace{w.Node, w.Client} {
		if err := ns.Sysctl("net/ipv4/ip_local_port_range", "10000 60000"); err != nil {
			t.Fatal(err)
		}
	}
	p := vmapdtest.StartDemo(t, w.Node, "--backend=userspace")
	before := residentSize(t, p)
	vips := []netip.AddrPort{netip.MustParseAddrPort("172.30.0.10:80"), netip.MustParseAddrPort("192.168.98.10:80")}
	conns := make([]*lab.Conn, 0, n)
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // memory is measured here, and not time
		c, err := w.Client.Dial(ctx, "tcp4", vips[i%len(vips)])
		if err == nil {
			_, err = c.Ask(ctx)
		}
		cancel()
		if err != nil {
			t.Fatalf("connection %d: %v\n%s", i, err, p.Log)
		}
		conns = append(conns, c)
	}
	after, open := residentSize(t, p), openFilesOf(t, p)
	all := before + (after-before)/n*many
	t.Logf("%d connections: %d MB resident, %d MB before, %d bytes for each, %d MB for %d; %d open files", n,
		after>>20, before>>20, (after-before)/n, all>>20, many, open)
	if all > most {
		t.Errorf("want at most %d MB for %d connections, got %d MB", most>>20, many, all>>20)
	}
	// Two sockets for each, and two pipes for io.Copy.
	if open > 6*n+500 {
		t.Errorf("%d connections have %d open files", n, open)
	}
	for i, c := range conns {
		if _, err := c.Ask(t.Context()); err != nil {
			t.Fatalf("connection %d does not work any more: %v", i, err)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	vmapdtest.Eventually(t, func() string {
		if n := openFilesOf(t, p); n > open-2*len(conns)+500 { // Go keeps the pipes for some time
			return fmt.Sprintf("the connections are closed, and the daemon has %d open files", n)
		}
		return ""
	})
}

// raiseOpenFiles raises the limit of open files until the test ends, for this process and those that it
// starts, and returns the limit. To go beyond the hard limit needs CAP_SYS_RESOURCE, and none of a user namespace.
func raiseOpenFiles(t *testing.T, to uint64) uint64 {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	raised := unix.Rlimit{Cur: max(was.Cur, to), Max: max(was.Max, to)}
	if err := syscall.Setrlimit(unix.RLIMIT_NOFILE, (*syscall.Rlimit)(&raised)); err != nil { // of package syscall: else processes get the limit of the start
		return was.Max
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(unix.RLIMIT_NOFILE, (*syscall.Rlimit)(&was)) })
	return raised.Max
}

// residentSize returns the memory of a process.
func residentSize(t *testing.T, p *vmapdtest.Process) int {
	t.Helper()
	text := testaid.Read(t, fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmRSS:" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("the process has no memory")
	return 0
}

func openFilesOf(t *testing.T, p *vmapdtest.Process) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
