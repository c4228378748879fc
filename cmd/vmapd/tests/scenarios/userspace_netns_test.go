package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/sync/manifest"
)

// forwarderName is the name by which the test binary is a forwarder of the userspace backend.
const forwarderName = "forward-manifest"

// forwardManifest serves the Services of a manifest, its standard input. Its arguments are the flags of a scenario.
func forwardManifest() {
	if err := forwardStdin(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func forwardStdin(args []string) error {
	var command cli.NodeFlags
	flags := pflag.NewFlagSet(forwarderName, pflag.ContinueOnError)
	command.AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	_, traffic, err := command.Load(io.Discard)
	if err != nil {
		return err
	}
	objects, _, err := manifest.Load([]string{"-"})
	if err != nil {
		return err
	}
	if traffic.NodeName == "" {
		if traffic.NodeName, err = config.OnlyNode(manifest.Of[model.Node](objects)); err != nil {
			return err
		}
	}
	b := model.NewBuilder(traffic)
	objects.ApplyTo(b)
	o := userspace.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	set, err := userspace.OpenDevice()
	switch {
	case err == nil:
		o.SetAddresses = set
	case !errors.Is(err, unix.EPERM):
		return err
	}
	f := userspace.New(o)
	if err := f.Apply(context.Background(), b.Snapshot()); err != nil {
		return err
	}
	fmt.Println("ready")
	f.Run(context.Background())
	return nil
}

// TestScenariosByUserspace makes each flow's connections through the userspace backend, in a process of its own.
// Package traffic has the daemon of an ordinary user.
func TestScenariosByUserspace(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: takes minutes")
	}
	nettest.Need(t)
	for _, s := range scenarios(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			snapshot, objects := s.load(t).Snapshot, s.load(t).Objects
			flows := s.flows(t)
			// A process of the node keeps its port, so that nobody of it listens where a Service may.
			own := nodeAddrs(objects)
			onNode := func(f flow) bool {
				return f.want == "elsewhere" && (f.dest.Addr().IsLoopback() || slices.Contains(own, f.dest.Addr()))
			}
			w := newWorld(t, objects, slices.DeleteFunc(slices.Clone(flows), onNode))
			forward(t, s, w)
			// What is to be dropped is reset, a named difference that can be tried.
			resets := func(f flow) bool {
				return f.want == "drop" && userspaceDiffers(t, f, snapshot, w.nodeAddrs) == dropIsReset
			}
			differs := func(f flow) string {
				if resets(f) {
					return ""
				}
				return userspaceDiffers(t, f, snapshot, w.nodeAddrs)
			}
			heard := listen(t, w, slices.DeleteFunc(slices.Clone(flows), func(f flow) bool {
				return differs(f) != "" ||
					onNode(f) || resets(f)
			}))
			var last string
			for _, f := range flows {
				// Endpoints see the node's address, which is the one of a masqueraded connection.
				f.endpoints = slices.Clone(f.endpoints)
				for i := range f.endpoints {
					f.endpoints[i].masquerade = true
				}
				t.Run(f.text, func(t *testing.T) {
					switch what := differs(f); {
					case what != "":
						t.Skipf("userspace does otherwise: %s", what)
					case onNode(f):
						if a := f.ask(t.Context(), w, vmapdtest.Patience); lab.FailureOf(a.err) != lab.Refused {
							t.Errorf("want it refused, got answer %+v, error %v", a.answer, a.err)
						}
					case resets(f):
						if a := f.ask(t.Context(), w, vmapdtest.Patience); lab.FailureOf(a.err) != lab.Reset &&
							lab.FailureOf(a.err) != lab.Refused {
							t.Errorf("want a reset, got answer %+v, error %v", a.answer, a.err)
						}
					default:
						last = f.connect(t, w, heard[f.line], last)
					}
				})
			}
		})
	}
}

// dropIsReset is what userspace does otherwise, and can be tried.
const dropIsReset = "a TCP connection that is to be dropped is accepted and reset"

// userspaceDiffers returns what userspace does otherwise with a flow, or "". The page docs/internals.md has all.
func userspaceDiffers(t *testing.T, f flow, snapshot *model.Snapshot, nodeAddrs []netip.Addr) string {
	t.Helper()
	s, d := snapshot.Family(f.family()), model.Decide(snapshot, f.connection(nodeAddrs))
	addrs, listeners := served(t, s)
	loops := func(target model.Target) bool {
		return listeners[model.VIP{Addr: target.Addr.Addr(), Protocol: d.Protocol, Port: target.Addr.Port()}.String()]
	}
	switch fe := d.Frontend; {
	case fe == nil && addrs[d.Dest.Addr()]:
		return "on the address of a Service, other ports are refused, or a process of the node answers"
	case fe == nil:
		return ""
	case d.Protocol == model.SCTP:
		return "SCTP is not served"
	case d.Verdict == model.Dropped && d.Protocol == model.TCP:
		return dropIsReset
	case d.Verdict == model.Dropped && fe.Action == model.Reject:
		return "a Service without endpoints refuses datagrams that are to be dropped"
	case fe.Kind != model.NodePort && !addrs[d.Dest.Addr()] && !slices.Contains(s.NodeAddrs, d.Dest.Addr()):
		return "an address that is a pod's is not served"
	case slices.ContainsFunc(d.Targets, loops):
		return "an endpoint that is a Service's address is never used"
	}
	return ""
}

// served returns what render lists for userspace: addresses, and listeners by address, port and protocol.
func served(t *testing.T, s *model.FamilySnapshot) (addrs map[netip.Addr]bool, listeners map[string]bool) {
	t.Helper()
	var text strings.Builder
	if err := userspace.Write(&text, s); err != nil {
		t.Fatal(err)
	}
	addrs, listeners = map[netip.Addr]bool{}, map[string]bool{}
	for line := range strings.Lines(text.String()) {
		switch words := strings.Fields(line); words[0] {
		case "address":
			addrs[netip.MustParseAddr(words[1])] = true
		case "listen":
			listeners[words[1]] = true
		}
	}
	return addrs, listeners
}

// forward runs a forwarder of a scenario on the node until the test ends.
func forward(t *testing.T, s *scenario, w *world) {
	t.Helper()
	c := w.Node.Command(t.Context(), "/proc/self/exe")
	c.Args = append([]string{forwarderName}, s.flags...)
	c.Stdin = strings.NewReader(s.manifests())
	log := &testlog.Log{}
	c.Stderr = log
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("the forwarder says:\n%s", log)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the forwarder is not ready: %q, %v\n%s", line, err, log)
	}
}
