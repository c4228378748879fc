// Package bench is what the commands chaos, retry and scale share: a node with an API server and a Service proxy as a
// process, and the objects of small clusters.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Rig is a machine with an API server, for one Service proxy after the other.
type Rig struct {
	machine    *lab.Namespace
	API        *apitest.Server
	Kubeconfig string
	Proxy      *lab.Daemon // the last one; nil before
	folder     string
}

// New starts an API server in a namespace, which only there is reached. Close ends it, also after an error.
func New(machine *lab.Namespace) (r *Rig, err error) {
	r = &Rig{machine: machine}
	if r.folder, err = os.MkdirTemp("", "vmapd-bench-"); err != nil {
		return r, fmt.Errorf("make a folder for the kubeconfig: %w", err)
	}
	err = machine.Do(func() (err error) { r.API, err = apitest.NewServer(apitest.Options{}); return err })
	if err != nil {
		return r, err
	}
	r.Kubeconfig, err = r.API.Kubeconfig(r.folder)
	return r, err
}

// Vmapd are flags of vmapd with a backend.
func (r *Rig) Vmapd(backend string) []string {
	return []string{"--backend", backend, "--socket", filepath.Join(r.folder, "vmapd.sock")}
}

// Flags are those that vmapd and kube-proxy have in common: they change no setting of the host.
func (r *Rig) Flags(nodeName, podRanges string) []string {
	return []string{
		"--hostname-override", nodeName, "--cluster-cidr", podRanges, "--kubeconfig", r.Kubeconfig,
		"--conntrack-max-per-core", "0",
	}
}

// StartEither starts kube-proxy in mode nftables, if its path is given, or else vmapd with that backend.
func (r *Rig) StartEither(ctx context.Context, vmapd, kubeProxy string, flags ...string) error {
	if kubeProxy != "" {
		return r.Start(ctx, kubeProxy, append(flags, "--proxy-mode", "nftables")...)
	}
	return r.Start(ctx, vmapd, append(flags, r.Vmapd("nftables")...)...)
}

// Start starts a proxy.
func (r *Rig) Start(ctx context.Context, program string, args ...string) (err error) {
	r.Proxy, err = r.machine.Start(ctx, program, args...)
	return err
}

// Log is the end of what the proxy has written.
func (r *Rig) Log() string {
	const most = 4000
	text := r.Proxy.Log.String()
	return "the end of the proxy's log:\n" + text[max(0, len(text)-most):]
}

// Close kills the proxy, and ends the API server. The namespace stays.
func (r *Rig) Close() (err error) {
	if r.Proxy != nil {
		_ = r.Proxy.End(os.Kill) // the signal is its result
	}
	if r.API != nil {
		r.API.Close()
	}
	if r.folder != "" {
		err = errors.Join(err, os.RemoveAll(r.folder))
	}
	return err
}

// Machine says on what figures were measured.
func Machine() string {
	var system unix.Utsname
	_ = unix.Uname(&system) // it fails for a bad address only
	return fmt.Sprintf("Linux %s on %d processors", unix.ByteSliceToString(system.Release[:]), runtime.NumCPU())
}
