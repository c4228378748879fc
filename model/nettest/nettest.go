// Package nettest is for tests that need network namespaces, or programs that a machine may lack.
package nettest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inside marks a process that Main started.
const inside = "VMAPD_TEST_NAMESPACE"

// Main is TestMain of a package with tests that need network namespaces:
//
//	func TestMain(m *testing.M) { nettest.Main(m) }
func Main(m *testing.M) {
	Prepare()
	os.Exit(m.Run())
}

// Prepare begins a program again as root of a user namespace, if this process may not create network namespaces.
// Where the system allows no user namespaces either, the tests are skipped by [Need]. Most of these tests wait for
// packets, so it also sets the default of -parallel: more of them run at a time than there are processors.
func Prepare() {
	_ = flag.Set("test.parallel", "5")
	ownLock()
	again := os.Getenv(inside) != ""
	os.Unsetenv(inside) // it is not about the programs that this one starts
	err := available()
	if err == nil {
		return
	}
	unshare, missing := exec.LookPath("unshare")
	if again || missing != nil {
		fmt.Fprintln(os.Stderr, "no network namespaces:", err, missing)
		return
	}
	if err := exec.Command(unshare, "-rm", unshare, "-n", "true").Run(); err != nil {
		fmt.Fprintf(os.Stderr, "no user namespaces: %v; look at the sysctls kernel.unprivileged_userns_clone, "+
			"kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces and user.max_net_namespaces\n", err)
		return
	}
	// With "unshare -rn", ip_tables_names is not root's: the user namespace has no root yet.
	script := []string{"unshare", "-rm", unshare, "-n", "sh", "-c", `ip link set lo up && exec "$0" "$@"`}
	err = unix.Exec(unshare, append(script, os.Args...), append(os.Environ(), inside+"=1"))
	fmt.Fprintln(os.Stderr, "run unshare:", err)
}

// ownLock gives iptables-legacy a lock file of this user's, unless this process may open the usual one.
func ownLock() {
	f, err := os.OpenFile("/run/xtables.lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		_ = os.Setenv("XTABLES_LOCKFILE", filepath.Join(os.TempDir(), fmt.Sprintf("vmapd-test-%d.lock", os.Getuid())))
		return
	}
	_ = f.Close()
}

// Rootless reports whether root here is the only user of a user namespace: no other user can be tried, and buffers of
// sockets have the limits of ordinary users.
func Rootless() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || strings.Fields(string(users))[2] == "1"
}

// NeedRoot skips a test that needs root of the machine, such as to become another user.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 || Rootless() {
		Missing(t, "root outside of a user namespace")
	}
}

// available returns nil if this process can create network namespaces, and come back from them: after "unshare -r"
// without -n, it is root, but of nothing that owns the namespace that it is in. To enter that one asks just this.
func available() error {
	ns, err := Create()
	if err != nil {
		return err
	}
	defer ns.Close()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	return unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
}

// Create returns a new network namespace, which exists until the file is closed and nothing else uses it.
func Create() (ns *os.File, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread can't end
			defer runtime.UnlockOSThread()
			ns, err = Create()
			return
		}
		// Other threads end with their goroutine, if they are never unlocked: this one is in the new namespace.
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-ended
	return ns, err
}

// Need skips a test where no network namespace can be created.
func Need(t testing.TB) {
	t.Helper()
	if err := available(); err != nil {
		Missing(t, "the right to create a network namespace: ", err)
	}
}

// New returns a new network namespace, which exists until the test ends.
func New(t testing.TB) *os.File {
	t.Helper()
	ns, err := Create()
	if err != nil {
		Missing(t, "the right to create a network namespace: ", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// Enter moves a test to a new network namespace. Its thread ends with it.
func Enter(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		Missing(t, "the right to create a network namespace: ", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Run runs a program in the network namespace of the caller's thread, with an input, and returns its output.
func Run(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// Listed is a table as a variant of iptables lists it, with counters.
func Listed(t testing.TB, program, table string) string {
	t.Helper()
	list := Run(t, "", program+"-save", "-c", "-t", table)
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(list, "")
}

// Missing skips a test that lacks a privilege or a program. Where the environment has CI, nothing may be missing, and
// the test fails. A kernel that lacks a feature is no such case: then a test calls t.Skip itself.
func Missing(t testing.TB, what ...any) {
	t.Helper()
	text := "missing: " + fmt.Sprint(what...)
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}
