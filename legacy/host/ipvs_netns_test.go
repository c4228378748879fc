package host_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/others"
)

// These tests need a kernel with IPVS; make -C cmd/internal/testbed test-ipvs has one.

// openIPVS opens the backend, and returns what it logs.
func openIPVS(t *testing.T, o ipvs.Options) (*host.IPVS, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	b, err := host.OpenIPVS(o, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var unsupported *host.UnsupportedError
	if errors.As(err, &unsupported) && strings.HasPrefix(unsupported.Feature, "IPVS") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, &log
}

func sorted(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// cluster returns objects of every kind.
func cluster(more ...modeltest.Object) []modeltest.Object {
	return append([]modeltest.Object{
		modeltest.OurNode(), modeltest.NewServiceCIDR("kubernetes", "172.30.0.0/16", "fd00:172:30::/112"),
		modeltest.NewService("ns1/local").On("172.30.0.42", "fd00:172:30::2a").TCP("http", 80).NodePort(30001).
			LoadBalancer("192.168.98.11", "fd00:192:168:98::b").Policies("", "Local").Sticky(10800),
		modeltest.NewSlice("ns1/local-1", "local").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3"),
		modeltest.NewSlice("ns1/local-2", "local").IPv6().TCP("http", 8080).Ready("fd00:10::3"),
		modeltest.NewService("ns1/web").On("172.30.0.41", "fd00:172:30::29").External("192.168.99.11").TCP("http", 80).UDP("dns", 53).
			Port(model.Port{Name: "s", Protocol: "SCTP", Port: 99}).
			LoadBalancer("192.168.98.12", "fd00:192:168:98::c").Ranges("203.0.113.0/25", "203.0.113.200/32", "0.0.0.0/0", "::/0").Algorithm("maglev"),
		modeltest.NewSlice("ns1/web-2", "web").IPv6().TCP("http", 8080).Local("fd00:10::4"),
		modeltest.NewService("ns2/none").On("172.30.0.43", "fd00:172:30::2b").TCP("http", 80).NodePort(30002),
	}, more...)
}

var (
	twoWebs = modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 53).Port("s", "SCTP", 99).Ready("10.0.0.4", "10.0.0.5")
	oneWeb  = modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).UDP("dns", 53).Port("s", "SCTP", 99).Ready("10.0.0.4")
)

var hostConfig = model.Config{
	NodeName: modeltest.NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true}, DropInvalid: true,
	LocalPods: model.LocalPods{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/0")}},
}

func apply(t *testing.T, b comparer, s *model.Snapshot) {
	t.Helper()
	if err := b.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// The programs list the desired state, a restart finds nothing to do, foreign changes are
// repaired, and the cost of a change depends on its size.
func TestIPVSIsAsTheStateSays(t *testing.T) {
	nettest.Enter(t)
	b, log := openIPVS(t, ipvs.Options{StrictARP: true, Timeouts: ipvs.Timeouts{TCP: 1000 * time.Second}})
	s := modeltest.Snapshot(hostConfig, cluster(twoWebs)...)
	apply(t, b, s)
	var servers, entries string
	for _, f := range model.Families {
		state := ipvs.Compile(nil, s.Family(f), ipvs.Options{})
		servers += state.Text("ipvsadm")
		entries += state.Text("ipset")
	}
	if diff := cmp.Diff(sorted(servers), sorted(nettest.Run(t, "", "ipvsadm", "-Sn"))); diff != "" {
		t.Errorf("virtual servers (-want +got):\n%s", diff)
	}
	creation := regexp.MustCompile(`create .*`)
	if diff := cmp.Diff(sorted(creation.ReplaceAllString(entries, "")), sorted(creation.ReplaceAllString(nettest.Run(t, "", "ipset", "save"), ""))); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	before := everything(t)
	log.Reset()
	b.Resync()
	apply(t, b, s)
	second, secondLog := openIPVS(t, ipvs.Options{StrictARP: true, Timeouts: ipvs.Timeouts{TCP: 1000 * time.Second}})
	apply(t, second, s)
	if text := log.String() + secondLog.String(); strings.Contains(text, "applied") {
		t.Errorf("a restart with nothing to do wrote something:\n%s", text)
	}
	for _, harm := range []string{
		"iptables -t mangle -F VMAPD-IPVS-SERVICES", "iptables -t mangle -F PREROUTING", "iptables -I INPUT -j ACCEPT",
		"ip6tables -t nat -F POSTROUTING", "ipset flush VMAPD-SERVICES", "ipvsadm -C", "ip link delete vmapd-ipvs0",
		"ipvsadm -E -t 172.30.0.42:80 -s wlc", "ipvsadm -A -t 192.0.2.1:80 -s rr", "ipvsadm --set 7 7 7",
		"ip6tables -I FORWARD -j VMAPD-IPVS-FORWARD", "ip address add 172.30.9.9/32 dev vmapd-ipvs0",
	} {
		nettest.Run(t, "", "sh", "-c", harm)
		second.Resync()
		apply(t, second, s)
		// A rule of somebody else may stay.
		if diff := cmp.Diff(before, strings.ReplaceAll(everything(t), "-A INPUT -j ACCEPT\n", "")); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", harm, diff)
		}
	}
	secondLog.Reset()
	apply(t, second, modeltest.Snapshot(hostConfig, cluster(oneWeb)...))
	// Three addresses with TCP, which drains, UDP and SCTP.
	if text := secondLog.String(); strings.Count(text, "applied") != 1 || !strings.Contains(text, "operations=9 drained=3") {
		t.Errorf("an endpoint less:\n%s", text)
	}
}

// counters finds the parts of listings that change by themselves.
var counters = regexp.MustCompile(`(?m) \[\d+:\d+\]$|^#.*\n|hashsize.*|initval.*|bucketsize \d+`)

// everything lists all objects that the backend may change.
func everything(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, command := range [][]string{
		{"ipvsadm", "-Sn"},
		{"ipset", "save"},
		{"ip", "-o", "address", "show", "dev", "vmapd-ipvs0"},
		{"iptables-legacy-save"},
		{"ip6tables-legacy-save"},
		{"iptables-nft-save"},
		{"ip6tables-nft-save"},
	} {
		if command[0] == "ip" {
			if _, err := netlink.LinkByName("vmapd-ipvs0"); err != nil {
				continue
			}
		}
		text := counters.ReplaceAllString(nettest.Run(t, "", command[0], command[1:]...), "")
		if !strings.Contains(command[0], "tables") {
			text = strings.Join(sorted(regexp.MustCompile(`^\d+: `).ReplaceAllString(text, "")), "\n") + "\n"
		}
		b.WriteString(text)
	}
	return regexp.MustCompile(`(?m)^\d+: `).ReplaceAllString(b.String(), "")
}

// With all settings, a restart recognizes the rules that the programs list.
func TestIPVSRestartsWithAnySettings(t *testing.T) {
	nettest.Enter(t)
	everybody := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	one := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00:10::1/128")}
	for _, c := range []model.Config{
		{MasqueradeAll: true},
		{DropInvalid: true, LocalPods: model.LocalPods{ClusterCIDRs: everybody}},
		{LocalPods: model.LocalPods{ClusterCIDRs: one}},
		{LocalPods: model.LocalPods{Mode: model.ByNodeCIDR}},
		{LocalPods: model.LocalPods{Mode: model.ByBridge, Interface: "cbr0"}},
		{LocalPods: model.LocalPods{Mode: model.ByInterfacePrefix, Interface: "cali"}},
	} {
		c.NodeName = modeltest.NodeName
		s := modeltest.Snapshot(c, cluster(twoWebs)...)
		first, _ := openIPVS(t, ipvs.Options{MasqueradeMark: 1 << 31})
		apply(t, first, s)
		second, log := openIPVS(t, ipvs.Options{MasqueradeMark: 1 << 31})
		apply(t, second, s)
		if strings.Contains(log.String(), "applied") {
			t.Errorf("%+v: a restart wrote something:\n%s\n%s", c.LocalPods, log, everything(t))
		}
	}
}

// An endpoint that goes keeps its connections, also across a restart, and is deleted when
// they have ended.
func TestIPVSDrains(t *testing.T) {
	nettest.Enter(t)
	nettest.Run(t, "", "ip", "address", "add", "10.0.0.2/32", "dev", "lo")
	l, err := net.Listen("tcp4", "10.0.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	builder := modeltest.Builder(modeltest.Config(), modeltest.OurNode(),
		modeltest.NewService("ns1/web").On("172.30.0.41").TCP("http", 80),
		modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.2"))
	b, _ := openIPVS(t, ipvs.Options{})
	apply(t, b, builder.Snapshot())
	c, err := net.DialTimeout("tcp4", "172.30.0.41:80", 10*time.Second)
	if err != nil {
		t.Fatalf("%v\n%s", err, nettest.Run(t, "", "ipvsadm", "-Ln"))
	}
	defer c.Close()
	goesOn := func() {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(c, "?"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	goesOn()
	modeltest.NewSlice("ns1/web-1", "web").TCP("http", 8080).Ready("10.0.0.3").Set(builder)
	apply(t, b, builder.Snapshot())
	const drains = "-a -t 172.30.0.41:80 -r 10.0.0.2:8080 -m -w 0"
	if text := nettest.Run(t, "", "ipvsadm", "-Sn"); !strings.Contains(text, drains) {
		t.Fatalf("it does not drain:\n%s", text)
	}
	second, log := openIPVS(t, ipvs.Options{})
	apply(t, second, builder.Snapshot())
	if strings.Contains(log.String(), "applied") || !strings.Contains(nettest.Run(t, "", "ipvsadm", "-Sn"), drains) {
		t.Errorf("after a restart it does not drain:\n%s", log)
	}
	goesOn()
	// A reset ends it for good: no TIME_WAIT.
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		second.Resync()
		apply(t, second, builder.Snapshot())
		text := nettest.Run(t, "", "ipvsadm", "-Sn")
		if !strings.Contains(text, "10.0.0.2") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there:\n%s\n%s", text, nettest.Run(t, "", "ipvsadm", "-Lnc"))
		}
	}
}

// A virtual server that the kernel refuses does not affect others, and no connection is let
// through to it.
func TestABadServerIsAlone(t *testing.T) {
	nettest.Enter(t)
	b, _ := openIPVS(t, ipvs.Options{Scheduler: "twos"})
	s := modeltest.Snapshot(hostConfig, cluster(twoWebs,
		modeltest.NewService("ns1/plain").On("172.30.0.44").TCP("http", 80).LoadBalancer("192.168.98.13").Policies("", "Local"),
		modeltest.NewSlice("ns1/plain-1", "plain").TCP("http", 8080).Local("10.0.0.2").Ready("10.0.0.3"),
	)...)
	err := b.Apply(t.Context(), s)
	if err == nil {
		t.Log("this kernel has the scheduler twos: nothing to see")
		return
	}
	for range 2 {
		for _, want := range []string{"IPv4", "IPv6", "ipvsadm -A -t 172.30.0.42:80 -s twos", "this kernel has no scheduler twos"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		port := modeltest.PortName("ns1/local", "http", model.TCP)
		if _, refused := model.Failures(err); !model.IsProgrammed(err) || !refused[model.IPv4][port] || !refused[model.IPv6][port] {
			t.Errorf("refused are %v, want %v in both families, and some that have no algorithm either: %v", refused, port, err)
		}
		if got := nettest.Run(t, "", "ipvsadm", "-Sn"); !strings.Contains(got, "-a -t 172.30.0.41:80 -r 10.0.0.4:8080 -m -w 1") {
			t.Errorf("the other Service is missing:\n%s", got)
		}
		got := nettest.Run(t, "", "ipset", "save", "VMAPD-SERVICES")
		if !strings.Contains(got, "172.30.0.41,tcp:80") || strings.Contains(got, "172.30.0.42,tcp:80") {
			t.Errorf("let through:\n%s", got)
		}
		err = b.Apply(t.Context(), s) // reads back, and tries again
	}
}

// remove removes what is found, but for that of some owners.
func remove(l *host.Leftovers, keep ...string) error {
	found, err := l.Find()
	for _, o := range found {
		if !slices.Contains(keep, o.Owner) {
			err = errors.Join(err, o.Remove())
		}
	}
	return err
}

// A removal leaves no trace of the backend, and all objects of others.
func TestRemoveIPVSLeavesNothing(t *testing.T) {
	nettest.Enter(t)
	b, _ := openIPVS(t, ipvs.Options{})
	remover := host.Leftovers{NFT: others.IPTables{}}
	if err := remove(&remover); err != nil { // the sets that are made with the backend
		t.Fatal(err)
	}
	// The commands themselves leave empty built-in chains behind.
	empty := regexp.MustCompile(`(?m)^\*.*\n(^:.*\n)*COMMIT\n`)
	before := empty.ReplaceAllString(everything(t), "")
	if strings.Contains(before, "VMAPD") {
		t.Fatalf("something is left:\n%s", before)
	}
	apply(t, b, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	for _, more := range []string{
		"ip link add kube-ipvs0 type dummy", "ipset create KUBE-CLUSTER-IP hash:ip,port",
		"ipvsadm -A -t 172.31.0.1:443 -s rr", "ipvsadm -A -t 192.0.2.1:80 -s rr", "ipvsadm -A -f 7 -s rr",
	} {
		nettest.Run(t, "", "sh", "-c", more)
	}
	remover.Options.ExcludeCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	if err := remove(&remover); err != nil {
		t.Fatal(err)
	}
	after := empty.ReplaceAllString(everything(t), "")
	foreign := "-A -f 7 -s rr\n-A -t 192.0.2.1:80 -s rr\n"
	if diff := cmp.Diff(strings.TrimSpace(before+foreign), strings.TrimSpace(after)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	links := nettest.Run(t, "", "ip", "-o", "link")
	if strings.Contains(links, "ipvs0") {
		t.Errorf("devices:\n%s", links)
	}
	// Without a device, no virtual server is ours.
	remover.Options.ExcludeCIDRs = nil
	if err := remove(&remover); err != nil {
		t.Fatal(err)
	}
	if got := nettest.Run(t, "", "ipvsadm", "-Sn"); !strings.Contains(got, "192.0.2.1") {
		t.Errorf("somebody else's virtual server is gone: %q", got)
	}
}

// With kube-proxy's device, the virtual servers are its own, as nothing says whose they are.
func TestRemoveIPVSKeepsKubeProxys(t *testing.T) {
	nettest.Enter(t)
	b, _ := openIPVS(t, ipvs.Options{})
	apply(t, b, modeltest.Snapshot(hostConfig, cluster(twoWebs)...))
	nettest.Run(t, "", "ip", "link", "add", "kube-ipvs0", "type", "dummy")
	nettest.Run(t, "", "ipset", "create", "KUBE-CLUSTER-IP", "hash:ip,port")
	servers := nettest.Run(t, "", "ipvsadm", "-Sn")
	remover := host.Leftovers{NFT: others.IPTables{}}
	if err := remove(&remover, host.OwnerKubeProxy); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(servers, nettest.Run(t, "", "ipvsadm", "-Sn")); diff != "" {
		t.Errorf("virtual servers (-before +after):\n%s", diff)
	}
	left := everything(t) + nettest.Run(t, "", "ip", "-o", "link")
	if strings.Contains(strings.ToLower(left), "vmapd") {
		t.Errorf("something of vmapd's is left:\n%s", left)
	}
	for _, theirs := range []string{"kube-ipvs0", "KUBE-CLUSTER-IP"} {
		if !strings.Contains(left, theirs) {
			t.Errorf("%s is gone:\n%s", theirs, left)
		}
	}
}
