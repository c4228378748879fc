package main

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
)

// programPath is where the image has the program.
const programPath = "/usr/local/bin/vmapd"

// xtablesLock is the lock of iptables-legacy, which the DaemonSet mounts.
const xtablesLock = "/run/xtables.lock"

// container is a program in a folder, as a container runtime starts it.
type container struct {
	Root       string
	UID, GID   int
	Privileged bool
	Env        []string
	Command    []string
}

// args returns the command line of this test binary that becomes the program, for which args are added.
func (c container) args(t *testing.T, args ...string) []string {
	t.Helper()
	c.Command = slices.Concat(c.Command, args)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"in-container", string(text)}
}

// confined is the container of the DaemonSet.
func confined(root string) container {
	return container{Root: root, Env: []string{"NODE_NAME=" + lab.NodeName, "PATH=/usr/sbin"}, Command: []string{programPath}}
}

// inContainer is a command, for tests: it enters a folder as a container runtime does, and
// becomes the program that is there.
func inContainer() {
	var c container
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		err = c.enter()
	}
	fmt.Fprintln(os.Stderr, "enter the container:", err) // or it would not have returned
	os.Exit(1)
}

// enter gives this process what the DaemonSet's securityContext says, and no more:
// NET_ADMIN and NET_RAW, no_new_privs, and a root file system that can't be written to, with /proc and /sys
// as runtimes mount them, and the folder of the socket. If privileged, it has all capabilities, and may write to the latter.
func (c container) enter() error {
	runtime.LockOSThread() // what follows concerns the thread that executes the program
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	proc, sys := filepath.Join(c.Root, "proc"), filepath.Join(c.Root, "sys")
	settings := filepath.Join(proc, "sys")
	mounts := [][2]string{{c.Root, c.Root}, {"/proc", proc}, {settings, settings}, {"/sys", sys}}
	for _, path := range []string{filepath.Dir(socket.DefaultPath), xtablesLock} { // these stay writable
		if path = filepath.Join(c.Root, path); there(path) {
			mounts = append(mounts, [2]string{path, path})
		}
	}
	if dev := filepath.Join(c.Root, "dev"); there(dev) {
		mounts = append(mounts, [2]string{"/dev", dev})
	}
	for _, m := range mounts {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", m[0], err)
		}
	}
	locked := []string{settings, sys, c.Root}
	if c.Privileged {
		locked = []string{c.Root}
	}
	for _, path := range locked {
		if err := readOnly(path); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/")); err != nil {
		return err
	}
	if !c.Privileged {
		if err := onlyCapabilities(); err != nil {
			return err
		}
	}
	// Go's own functions of these names, as they are for all threads.
	if err := errors.Join(syscall.Setgid(c.GID), syscall.Setuid(c.UID)); err != nil {
		return err
	}
	return syscall.Exec(c.Command[0], c.Command, c.Env)
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// onlyCapabilities drops all but those of the DaemonSet, for good.
func onlyCapabilities() error {
	for c := uintptr(0); ; c++ {
		if c == unix.CAP_NET_ADMIN || c == unix.CAP_NET_RAW {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// readOnly remounts a mount. In a user namespace, its other flags must stay.
func readOnly(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return err
	}
	flags := uintptr(s.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	if s.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, "")
}

// image returns a folder with what the image has, which is the program, a name for it, and this machine's programs of
// iptables with their libraries, and the folders for mounts.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	program := filepath.Join(root, programPath)
	for _, dir := range []string{"proc", "sys", "dev", "var/lib/vmapd", credentialsPath, filepath.Dir(programPath), filepath.Dir(socket.DefaultPath)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Symlink("vmapd", filepath.Join(root, filepath.Dir(programPath), "kube-proxy")); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program needs a dynamic loader")
		}
	}
	copyIPTables(t, root)
	return root
}

// copyIPTables copies the programs of both variants of iptables, where they are here, with all that they load.
func copyIPTables(t *testing.T, root string) {
	t.Helper()
	files := []string{}
	for _, variant := range []string{"nft", "legacy"} {
		program, err := exec.LookPath("xtables-" + variant + "-multi")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, program)
		for _, name := range []string{"iptables-" + variant, "ip6tables-" + variant} {
			for _, does := range []string{"", "-save", "-restore"} {
				link := filepath.Join(root, "usr/sbin", name+does)
				if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(program, link)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, extensions...)
	loads, err := exec.CommandContext(t.Context(), "ldd", files...).Output()
	if err != nil {
		t.Fatal(err)
	}
	loaded := regexp.MustCompile(`(?m)^\s.*?(/\S+) \(`)
	for _, m := range loaded.FindAllStringSubmatch(string(loads), -1) {
		files = append(files, m[1])
	}
	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		to := filepath.Join(root, file)
		data, err := os.ReadFile(file)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	replaceFile(t, filepath.Join(root, xtablesLock), "")
}

// The container of the DaemonSet has two capabilities, and folders for its socket and the lock of iptables. That is enough
// to start, to remove what kube-proxy left in either variant of iptables, to forward connections, to forget those
// that nobody answers any more, and to say how it is: without a warning.
func TestTheContainerHasAllItNeeds(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	local := c.service(t, "web")
	local.Spec.ExternalTrafficPolicy, local.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	c.api.Set(local)
	objects := readDeployed(t, "vmapd.yaml")
	pod := object[appsv1.DaemonSet](t, objects, "DaemonSet vmapd").Spec.Template.Spec
	root := image(t)
	c.mountPod(t, root, object[corev1.ConfigMap](t, objects, "ConfigMap vmapd"))

	same := func(arg string) string { return arg }
	inRoot := func(arg string) string {
		return strings.ReplaceAll(arg, "/var/lib/vmapd", filepath.Join(root, "var/lib/vmapd"))
	}
	for _, variant := range []string{"nft", "legacy"} {
		leaveRules(t, c.Node, variant)
	}
	setup := c.start(t, arguments(t, &pod.InitContainers[0], inRoot)...)
	if code := setup.exit(t); code != 0 {
		t.Fatalf("--init-only: exit code %d\n%s", code, setup.log)
	}
	p := c.launch(t, "/proc/self/exe", confined(root).args(t, arguments(t, &pod.Containers[0], same)...)...)
	p.waitFor(t, "msg=ready")
	checkConfined(t, p.cmd.Process.Pid)
	for _, variant := range []string{"nft", "legacy"} {
		if n := services(t, c.Node, variant); n != 0 {
			t.Errorf("%d rules of kube-proxy's are left in iptables-%s", n, variant)
		}
	}

	wantStatus(t, c.Client, healthURL+"/readyz", http.StatusOK)
	wantStatus(t, c.Client, healthURL+"/livez", http.StatusOK)
	wantStatus(t, c.Client, "http://"+lab.NodeIP4+":32000/", http.StatusOK)
	wantStatus(t, c.Node, metricsURL+"/metrics", http.StatusOK)
	for _, to := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80", lab.NodeIP4 + ":30080", "192.168.98.10:80"} {
		c.ask(t, netip.MustParseAddrPort(to))
	}
	c.followsUDP(t)
	// On the node, the folder is mounted: root asks the daemon there, too.
	var status struct{ Backend string }
	if err := (socket.Client{Path: filepath.Join(root, socket.DefaultPath)}).Get(t.Context(), "/v1/status", nil, &status); err != nil || status.Backend != "nftables" {
		t.Errorf("at the socket: backend %q, %v", status.Backend, err)
	}
	c.wantEvent(t, "Starting", "Node", lab.NodeName, "nftables")
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the daemon misses something: %s", line)
		}
	}
}

// mountPod writes what the kubelet mounts into the pod. Of the ConfigMap, the address of the
// server is filled in, as an administrator has to, and one limit is left alone that nobody
// can set in the network namespace of a test.
func (c *apiCluster) mountPod(t *testing.T, root string, files *corev1.ConfigMap) {
	t.Helper()
	for name, text := range files.Data {
		switch name {
		case "config.conf":
			text += "conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 23h}\n"
		case "kubeconfig.conf":
			text = strings.ReplaceAll(text, "https://control-plane.example:6443", c.api.URL())
		}
		replaceFile(t, filepath.Join(root, "var/lib/vmapd", name), text)
	}
	credentials := c.api.Config()
	replaceFile(t, filepath.Join(root, credentialsPath, "token"), credentials.BearerToken)
	replaceFile(t, filepath.Join(root, credentialsPath, "ca.crt"), string(credentials.CAData))
}

// checkConfined checks that the process has what the test says.
func checkConfined(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	only := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN|1<<unix.CAP_NET_RAW)
	for _, want := range []string{"CapPrm:\t" + only, "CapEff:\t" + only, "CapBnd:\t" + only, "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("not %q:\n%s", want, status)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if path := fields[1]; (path == "/" || path == "/sys" || path == "/proc/sys") && !strings.HasPrefix(fields[3], "ro") {
			t.Errorf("can be written to: %s", line)
		}
	}
}

// followsUDP checks that a client which goes on sending is not sent to a pod that is gone.
func (c *apiCluster) followsUDP(t *testing.T) {
	t.Helper()
	flow, err := c.Client.Dial(t.Context(), "udp", webVIP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flow.Close() }()
	first, err := flow.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var others []byte
	for i, pod := range c.Pods() {
		if pod.Name() != first.Pod {
			others = append(others, byte(2+i))
		}
	}
	c.api.Set(webSlice(others...))
	waitUntil(t, "the client of "+first.Pod+" is answered by another pod", func() bool {
		a, err := flow.Ask(t.Context())
		return err == nil && a.Pod != first.Pod
	})
}

// The way back: the container of cleanup.yaml has the same image and capability, and removes the
// rules of each backend. kube-proxy's stay, and the other container waits until it is told to end.
func TestTheContainerThatCleansUp(t *testing.T) {
	t.Parallel()
	w := newLab(t)
	pod := object[appsv1.DaemonSet](t, readDeployed(t, "cleanup.yaml"), "DaemonSet vmapd-cleanup").Spec.Template.Spec
	root := image(t)
	kubeProxyIsBack(t, w.Node)
	for family, program := range map[string]string{"ipv4": "iptables", "ipv6": "ip6tables"} {
		for _, variant := range []string{"legacy", "nft"} {
			feed(t, w.Node, rendered(t, "--backend=iptables", "--ip-family="+family), program+"-"+variant+"-restore", "--noflush")
		}
	}
	feed(t, w.Node, rendered(t), "nft", "-f", "-")
	in := func(args []string) *process {
		p := &process{cmd: w.Node.Command(t.Context(), "/proc/self/exe"), log: &syncBuffer{}}
		p.cmd.Args, p.cmd.Stderr = confined(root).args(t, args...), p.log
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if clean := in(pod.InitContainers[0].Args); clean.exit(t) != 0 {
		t.Fatalf("cleanup fails: %s", clean.log)
	}
	if diff := cmp.Diff(withoutVmapd(t), rulesets(t, w.Node)); diff != "" {
		t.Errorf("other than on a node that never had vmapd (-want +got):\n%s", diff)
	}
	done := in(pod.Containers[0].Args)
	waitUntil(t, "the container has started", func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", done.cmd.Process.Pid))
		return err == nil && strings.HasSuffix(exe, programPath)
	})
	if err := done.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("the container that waits has ended: %v\n%s", err, done.log)
	}
	if code := done.exit(t); code != 0 && code != -1 { // it may not have come to handle the signal
		t.Errorf("exit code %d\n%s", code, done.log)
	}
}
