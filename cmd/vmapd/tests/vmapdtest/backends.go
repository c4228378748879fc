package vmapdtest

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/devices"
)

// Networks are the networks of a connection.
var Networks = []string{"tcp4", "tcp6", "udp4", "udp6"}

// Patience is the time limit of a connection that should be answered or rejected: for an
// emulated machine, on a host that is busy.
const Patience = 10 * time.Second

// Silence is the time to wait for an answer where a packet should be dropped. Answers
// in a lab take a few milliseconds.
const Silence = 250 * time.Millisecond

// Plane is a world with a node that a backend of this process programs.
type Plane struct {
	*lab.World
	Builder *model.Builder
	Backend *kernel.Backend
}

// NewPlane makes one with nftables.
func NewPlane(t *testing.T, pods int, config model.Config, ports ...uint16) *Plane {
	t.Helper()
	w := labtest.With(t, lab.Config{Pods: pods, Ports: ports})
	ips := modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6)
	b := modeltest.Builder(config, modeltest.OurNode(), ips)
	return &Plane{World: w, Builder: b, Backend: OpenKernel(t, w.Node, kernel.Options{})}
}

// Set sets objects and programs what follows from them.
func (p *Plane) Set(t *testing.T, objects ...modeltest.Object) {
	t.Helper()
	for _, o := range objects {
		o.Set(p.Builder)
	}
	if err := p.Backend.Apply(t.Context(), p.Builder.Snapshot()); err != nil {
		t.Fatal(err)
	}
}

// NetNS is the network namespace of a node as an open file, until the test ends.
func NetNS(t testing.TB, node *lab.Namespace) int {
	t.Helper()
	var ns *os.File
	if err := node.Do(func() (err error) { ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return int(ns.Fd())
}

// OpenKernel opens a backend for a namespace.
func OpenKernel(t *testing.T, node *lab.Namespace, o kernel.Options) *kernel.Backend {
	t.Helper()
	o.NetNS = NetNS(t, node)
	b, err := kernel.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// ByIPVS is the name of a program of scenarios.
const ByIPVS = "by IPVS"

// NeedIPVS skips a test where the kernel has not loaded IPVS. make -C cmd/internal/testbed test-ipvs runs it.
func NeedIPVS(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Skip("IPVS in the kernel (module ip_vs): ", err)
	}
}

// OpenIPVS opens the backend in a node's namespace. To use it is to be there, too: it runs
// programs.
func OpenIPVS(t *testing.T, node *lab.Namespace, log *slog.Logger) *host.IPVS {
	t.Helper()
	var b *host.IPVS
	err := node.Do(func() (err error) {
		b, err = host.OpenIPVS(ipvs.Options{}, log)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// NeedFastPath skips a test where the kernel has no fast path.
func NeedFastPath(t testing.TB) {
	t.Helper()
	if err := LacksFastPath(t); err != nil {
		t.Skipf("this kernel has no fast path: %v", err)
	}
}

// LacksFastPath returns what the kernel lacks for the fast path of one of the families.
func LacksFastPath(t testing.TB) error {
	t.Helper()
	b, err := kernel.Open(kernel.Options{FastPath: true})
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	for _, p := range b.FastPaths() {
		if p.Lacks != nil {
			return p.Lacks
		}
	}
	return nil
}

// FollowDevices follows the devices of a node until the test ends.
func FollowDevices(t testing.TB, node *lab.Namespace, changed func(names []string)) {
	t.Helper()
	testaid.Run(t, func(ctx context.Context) {
		_ = node.Do(func() error { // it fails only if the namespace is closed
			devices.Follow(ctx, slog.New(slog.DiscardHandler), devices.Choice{Auto: true}, changed)
			return nil
		})
	})
}

// NeedNFT skips a test where there is no nft.
func NeedNFT(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		nettest.Missing(t, "nft")
	}
}

// WithoutICMPLimits lets a node answer every rejected datagram. By default, the kernel answers only the first 6 to a
// host, and 50 in all. The masks have the types of ICMP errors that it limits.
func WithoutICMPLimits(t *testing.T, node *lab.Namespace) {
	t.Helper()
	for name, mask := range map[string]string{"net/ipv4/icmp_ratemask": "0", "net/ipv6/icmp/ratemask": "127"} {
		if err := node.Sysctl(name, mask); err != nil {
			t.Fatal(err)
		}
	}
}

// UserspaceArgs are the flags of a daemon in user space.
var UserspaceArgs = []string{
	"--hostname-override", lab.NodeName, "--backend=userspace", "--nodeport-addresses", "primary,localhost",
}
