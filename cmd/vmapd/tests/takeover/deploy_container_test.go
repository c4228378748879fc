package takeover

import (
	"debug/elf"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// confined is the container of the DaemonSet.
func confined(root string) vmapdtest.Container {
	return vmapdtest.Container{
		Root: root, Env: []string{"NODE_NAME=" + lab.NodeName, "PATH=/usr/sbin"},
		Command: []string{vmapdtest.ProgramPath},
	}
}

// image returns a folder with what the image has, which is the program, a name for it, and this machine's programs of
// iptables with their libraries, and the folders for mounts.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	program := filepath.Join(root, vmapdtest.ProgramPath)
	for _, dir := range []string{
		"proc", "sys", "dev", "var/lib/vmapd", credentialsPath,
		filepath.Dir(vmapdtest.ProgramPath), filepath.Dir(socket.DefaultPath),
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable() // which is vmapd, by that name
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		nettest.Missing(t, "a static program of the tests: CGO_ENABLED=0 makes one")
	}
	copyFile(t, self, program)
	if err := os.Symlink("vmapd", filepath.Join(root, filepath.Dir(vmapdtest.ProgramPath), "kube-proxy")); err != nil {
		t.Fatal(err)
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
		copyFile(t, file, filepath.Join(root, file))
	}
	vmapdtest.ReplaceFile(t, filepath.Join(root, vmapdtest.XtablesLock), "")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// The container of the DaemonSet has two capabilities, and folders for its socket and the lock of iptables. That is
// enough to start, to remove what kube-proxy left in either variant of iptables, to forward connections, to forget
// those that nobody answers any more, and to say how it is: without a warning.
func TestTheContainerHasAllItNeeds(t *testing.T) {
	t.Parallel()
	c := vmapdtest.NewCluster(t)
	local := c.Service(t, "web")
	local.Spec.ExternalTrafficPolicy, local.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
	c.API.Set(local)
	objects := vmapdtest.ReadDeployed(t, "vmapd.yaml")
	pod := vmapdtest.Object[appsv1.DaemonSet](t, objects, "DaemonSet vmapd").Spec.Template.Spec
	root := image(t)
	mountPod(t, c, root, vmapdtest.Object[corev1.ConfigMap](t, objects, "ConfigMap vmapd"))

	same := func(arg string) string { return arg }
	inRoot := func(arg string) string {
		return strings.ReplaceAll(arg, "/var/lib/vmapd", filepath.Join(root, "var/lib/vmapd"))
	}
	for _, variant := range []string{"nft", "legacy"} {
		vmapdtest.LeaveRules(t, c.Node, variant)
	}
	setup := c.Start(t, arguments(t, &pod.InitContainers[0], inRoot)...)
	if code := setup.Exit(t); code != 0 {
		t.Fatalf("--init-only: exit code %d\n%s", code, setup.Log)
	}
	if asked := c.API.Requests(""); len(asked) > 0 || strings.Contains(vmapdtest.ListRuleset(t, c.Node), "vmapd") {
		t.Errorf("--init-only asked the API server %v, or programmed something:\n%s", asked, vmapdtest.ListRuleset(t, c.Node))
	}
	if got := c.Read(t, "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established"); got != "82800" {
		t.Errorf("tcpEstablishedTimeout is %s after --init-only, want 23h", got)
	}
	p := confined(root).In(t, c.Node, arguments(t, &pod.Containers[0], same)...)
	p.WaitFor(t, "msg=ready")
	checkConfined(t, p.Cmd.Process.Pid)
	for _, variant := range []string{"nft", "legacy"} {
		if n := kubeProxyServices(t, c.Node, variant); n != 0 {
			t.Errorf("%d rules of kube-proxy's are left in iptables-%s", n, variant)
		}
	}

	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/readyz", http.StatusOK)
	vmapdtest.WantStatus(t, c.Client, vmapdtest.HealthURL+"/livez", http.StatusOK)
	vmapdtest.WantStatus(t, c.Client, "http://"+lab.NodeIP4+":32000/", http.StatusOK)
	vmapdtest.WantStatus(t, c.Node, vmapdtest.MetricsURL+"/metrics", http.StatusOK)
	for _, to := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80", lab.NodeIP4 + ":30080", "192.168.98.10:80"} {
		c.Ask(t, netip.MustParseAddrPort(to))
	}
	followsUDP(t, c)
	vmapdtest.Eventually(t, func() string {
		if n, _ := vmapdtest.Value(c.Scrape(t), "kubeproxy_conntrack_reconciler_deleted_entries_total",
			"ip_family=IPv4"); n < 1 {
			return "no entry counts as deleted"
		}
		return ""
	})
	for _, name := range []string{"vmapd_conntrack_entries", "vmapd_conntrack_limit"} {
		if n, _ := vmapdtest.Value(c.Scrape(t), name); n < 1 {
			t.Errorf("%s is %v", name, n)
		}
	}
	// On the node, the folder is mounted: root asks the daemon there, too.
	var status struct{ Backend string }
	if err := (socket.Client{Path: filepath.Join(root, socket.DefaultPath)}).Get(t.Context(), "/v1/status", nil,
		&status); err != nil || status.Backend != "nftables" {
		t.Errorf("at the socket: backend %q, %v", status.Backend, err)
	}
	c.WantEvent(t, "Starting", "Node", lab.NodeName, "nftables")
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("the daemon misses something: %s", line)
		}
	}
}

// mountPod writes what the kubelet mounts into the pod. Of the ConfigMap, the address of the
// server is filled in, as an administrator has to, and one limit is left alone that nobody
// can set in the network namespace of a test.
func mountPod(t *testing.T, c *vmapdtest.Cluster, root string, files *corev1.ConfigMap) {
	t.Helper()
	for name, text := range files.Data {
		switch name {
		case "config.conf":
			text += "conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 23h}\n"
		case "kubeconfig.conf":
			text = strings.ReplaceAll(text, "https://control-plane.example:6443", c.API.URL())
		}
		vmapdtest.ReplaceFile(t, filepath.Join(root, "var/lib/vmapd", name), text)
	}
	credentials := c.API.Config()
	vmapdtest.ReplaceFile(t, filepath.Join(root, credentialsPath, "token"), credentials.BearerToken)
	vmapdtest.ReplaceFile(t, filepath.Join(root, credentialsPath, "ca.crt"), string(credentials.CAData))
}

// checkConfined checks that the process has what the test says.
func checkConfined(t *testing.T, pid int) {
	t.Helper()
	status := testaid.Read(t, fmt.Sprintf("/proc/%d/status", pid))
	only := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN|1<<unix.CAP_NET_RAW)
	for _, want := range []string{
		"CapPrm:\t" + only, "CapEff:\t" + only, "CapBnd:\t" + only,
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1",
	} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("not %q:\n%s", want, status)
		}
	}
	mounts := testaid.Read(t, fmt.Sprintf("/proc/%d/mounts", pid))
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if path := fields[1]; (path == "/" || path == "/sys" || path == "/proc/sys") && !strings.HasPrefix(fields[3], "ro") {
			t.Errorf("can be written to: %s", line)
		}
	}
}

// followsUDP checks that a client which goes on sending is not sent to a pod that is gone.
func followsUDP(t *testing.T, c *vmapdtest.Cluster) {
	t.Helper()
	flow, err := c.Client.Dial(t.Context(), "udp", vmapdtest.WebVIP)
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
	c.API.Set(vmapdtest.WebSlice(others...))
	vmapdtest.WaitUntil(t, "the client of "+first.Pod+" is answered by another pod", func() bool {
		a, err := flow.Ask(t.Context())
		return err == nil && a.Pod != first.Pod
	})
}

// The way back: the container of cleanup.yaml has the same image and capability, and removes the
// rules of each backend. kube-proxy's stay, and the other container waits until it is told to end.
func TestTheContainerThatCleansUp(t *testing.T) {
	t.Parallel()
	w := labtest.New(t)
	pod := vmapdtest.Object[appsv1.DaemonSet](t, vmapdtest.ReadDeployed(t, "cleanup.yaml"),
		"DaemonSet vmapd-cleanup").Spec.Template.Spec
	root := image(t)
	kubeProxyIsBack(t, w.Node)
	for family, program := range map[string]string{"ipv4": "iptables", "ipv6": "ip6tables"} {
		for _, variant := range []string{"legacy", "nft"} {
			vmapdtest.Feed(t, w.Node, rendered(t, "--backend=iptables", "--ip-family="+family), program+"-"+variant+"-restore",
				"--noflush")
		}
	}
	vmapdtest.Feed(t, w.Node, rendered(t), "nft", "-f", "-")
	if clean := confined(root).In(t, w.Node, pod.InitContainers[0].Args...); clean.Exit(t) != 0 {
		t.Fatalf("cleanup fails: %s", clean.Log)
	}
	testaid.Equal(t, "other than on a node that never had vmapd", withoutVmapd(t), rulesets(t, w.Node))
	done := confined(root).In(t, w.Node, pod.Containers[0].Args...)
	vmapdtest.WaitUntil(t, "the container has started", func() bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", done.Cmd.Process.Pid))
		return err == nil && strings.HasSuffix(exe, vmapdtest.ProgramPath)
	})
	if err := done.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("the container that waits has ended: %v\n%s", err, done.Log)
	}
	if code := done.Exit(t); code != 0 && code != -1 { // it may not have come to handle the signal
		t.Errorf("exit code %d\n%s", code, done.Log)
	}
}

// kubeProxyServices counts the rules of kube-proxy's for Services.
func kubeProxyServices(t *testing.T, node *lab.Namespace, variant string) int {
	t.Helper()
	n := 0
	for program := range vmapdtest.LeftBehind {
		n += strings.Count(vmapdtest.Feed(t, node, "", program+"-"+variant+"-save"), "KUBE-SVC-")
	}
	return n
}
