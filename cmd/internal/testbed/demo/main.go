// Command demo demonstrates vmapd (make demo): it creates a client, a node and three pods in network namespaces
// (package lab). vmapd runs in the node and reads manifests. demo makes real connections through a cluster IP, a node
// port, an external IP and a load balancer's address, over IPv4 and IPv6, TCP and UDP. Then it replaces a pod under
// load.
//
// It prints which pods answered. The exit code is 1 if a result was wrong. It removes everything at the end, also if it
// is interrupted. It needs root or user namespaces.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	manifests "github.com/vmapd/vmapd/testdata/demo"
)

func main() {
	d := demo{out: os.Stdout, vmapd: "bin/vmapd"}
	lab.Main("demo", d.run)
}

// demo is one run.
type demo struct {
	out   io.Writer
	vmapd string // the program

	world  *lab.World
	proxy  *lab.Daemon
	folder string // of the manifests that vmapd follows
	asked  int
	wrong  int
}

// next is what to try after the demo.
const next = `
Next, why a connection is forwarded to these pods:

  bin/vmapd explain -f testdata/demo/before --from node 172.30.0.10:80

README.md has the same for the objects of your own cluster, and the page.
`

// run builds the world, makes the connections, and removes everything. It returns an error if a
// result was wrong.
func (d *demo) run(ctx context.Context) (err error) {
	began := time.Now()
	if d.folder, err = os.MkdirTemp("", "vmapd-demo-"); err != nil {
		return fmt.Errorf("make folder for manifests: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.folder)) }()
	if err := d.write("before"); err != nil {
		return err
	}
	d.printf("A client, a node and three pods, each in a network namespace of its own.\n")
	if d.world, err = lab.New(ctx, lab.Config{Pods: 3, Ports: []uint16{8080}}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.world.Close()) }()

	start := time.Now()
	d.proxy, err = d.world.Node.Start(ctx, d.vmapd, "--from", d.folder, "--hostname-override", lab.NodeName,
		"--socket=", // no file beside its own
		"--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "-v", "4")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.proxy.End(syscall.SIGTERM)) }()
	if err := d.waitFor(ctx, "msg=ready"); err != nil {
		return err
	}
	d.printf("vmapd runs in the node and has programmed two Services, %v after its start.\n\n",
		time.Since(start).Round(time.Millisecond))
	for _, step := range []func(context.Context) error{d.connections, d.refusals, d.rollout} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	if d.wrong > 0 {
		d.printf("\nFAILED: %d of %d connections had an unexpected result (%v).\nvmapd's log:\n%s",
			d.wrong, d.asked, took, &d.proxy.Log)
		return errors.New("a result was wrong")
	}
	d.printf("\nOK: all %d connections had the expected result (%v).\n%s", d.asked, took, next)
	return nil
}

func (d *demo) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

func (d *demo) complain(format string, args ...any) {
	d.wrong++
	d.printf("      WRONG: "+format+"\n", args...)
}

// waitFor waits until vmapd has logged a text once more.
func (d *demo) waitFor(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return d.proxy.Await(ctx, text)
}

// write brings the manifests of one folder to the folder that vmapd follows, each in one step, so that vmapd never
// reads half a file.
func (d *demo) write(from string) error {
	entries, err := manifests.Manifests.ReadDir(from)
	for _, e := range entries {
		text, readErr := manifests.Manifests.ReadFile(from + "/" + e.Name())
		target := d.folder + "/" + e.Name()
		err = errors.Join(err, readErr, os.WriteFile(target+".new", text, 0o644), os.Rename(target+".new", target))
	}
	if err != nil {
		return fmt.Errorf("copy manifests: %w", err)
	}
	return nil
}

// perRoute is the number of connections on each route. With three pods, the probability that
// one of them gets none is one in a hundred million.
const perRoute = 48

// route is a path to the Service web of the manifests, or to an address that must refuse.
type route struct {
	from, name string // client, node or a pod; the destination
	ips        [2]string
	port       uint16
	seen       string // what the pods see as the source
}

// The Service's addresses of both families.
var clusterIPs = [2]string{"172.30.0.10", "fd00:172:30::10"}

func routes() []route {
	const node, source, port, nodePort = "the node", "the source", 80, 30080
	balancer := [2]string{"192.168.98.10", "fd00:192:168:98::10"}
	return []route{
		{"client", "cluster IP", clusterIPs, port, node},
		{"client", "node port", [2]string{lab.NodeIP4, lab.NodeIP6}, nodePort, node},
		{"client", "external IP", [2]string{"192.168.99.10", "fd00:192:168:99::10"}, port, node},
		{"client", "load balancer", balancer, port, node},
		{"pod-2", "cluster IP", clusterIPs, port, source},
		{"node", "cluster IP", clusterIPs, port, node},
	}
}

// networks are the protocols and families of each route. The rows of the table are about the first.
func networks() []string { return []string{"tcp4", "tcp6", "udp4", "udp6"} }

// ask makes a connection.
func (d *demo) ask(ctx context.Context, r route, network string) (lab.Answer, error) {
	ns := map[string]*lab.Namespace{"client": d.world.Client, "node": d.world.Node}[r.from]
	if pod, err := d.world.Pod(r.from); err == nil {
		ns = pod.Namespace
	}
	d.asked++
	ip := r.ips[strings.Count(network, "6")]
	return ns.Ask(ctx, network, netip.AddrPortFrom(netip.MustParseAddr(ip), r.port))
}

// connections connects on all routes to the Service, and prints which pods answered over IPv4 and TCP.
func (d *demo) connections(ctx context.Context) error {
	d.printf("%d connections on each path, by the pod that answered:\n\n", perRoute)
	d.printf("  %-31s %6s %6s %6s %7s   %s\n", "", "pod-1", "pod-2", "pod-3", "failed", "the pods see")
	failures := 0
	for _, r := range routes() {
		for i, network := range networks() {
			by, failed, seen := map[string]int{}, 0, map[string]bool{}
			for range perRoute {
				a, err := d.ask(ctx, r, network)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					failed++
					d.complain("over %s: %v", network, err)
					continue
				}
				by[a.Pod]++
				// A pod that reaches itself must see the node as the source, or its reply would not come back through
				// the node.
				if a.Pod != r.from {
					seen[d.nameOf(a.Source.Addr(), r)] = true
				}
			}
			who := strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
			if i == 0 {
				d.printf("  %-31s %6d %6d %6d %7d   %s\n",
					r.from+" to "+r.name, by["pod-1"], by["pod-2"], by["pod-3"], failed, who)
			} else {
				failures += failed
			}
			if len(by) < 3 || who != r.seen {
				d.complain("over %s, pods got %v, and see %s instead of %s", network, by, who, r.seen)
			}
		}
	}
	d.printf("  the same for IPv6 and UDP: %d failed of %d\n", failures, len(routes())*(len(networks())-1)*perRoute)
	return nil
}

// nameOf returns the name of the host with an address, as the pods of a route see it.
func (d *demo) nameOf(a netip.Addr, r route) string {
	if a.String() == lab.NodeIP4 || a.String() == lab.NodeIP6 {
		return "the node"
	}
	if pod, err := d.world.Pod(r.from); err == nil && (pod.IP4 == a || pod.IP6 == a) {
		return "the source"
	}
	return a.String()
}

// refusals shows connections that must be rejected at once.
func (d *demo) refusals(ctx context.Context) error {
	d.printf("\nRejected at once, over IPv4 and IPv6:\n\n")
	for _, r := range []route{
		{from: "client", name: "a Service without endpoints", ips: [2]string{"172.30.0.11", "fd00:172:30::11"}, port: 80},
		{from: "pod-1", name: "a port that the Service does not have", ips: clusterIPs, port: 81},
	} {
		d.printf("  %-7s to %s\n", r.from, r.name)
		for _, network := range networks()[:2] {
			if _, err := d.ask(ctx, r, network); err == nil || lab.FailureOf(err) != lab.Refused {
				d.complain("want a refused connection, got: %v", err)
			}
		}
	}
	return ctx.Err()
}

// rollout replaces pod-1 by pod-4 under load, as Kubernetes does: pod-1 serves its connections for a while. No
// connection must be lost.
func (d *demo) rollout(ctx context.Context) error {
	const rate, patient = 200, 10 * time.Second // a busy machine may need seconds
	d.printf("\npod-4 replaces pod-1, with %d connections a second on each path:\n\n", rate)
	var stops []func() lab.Report
	paths := []struct {
		network string
		route
	}{{"tcp4", routes()[3]}, {"tcp6", routes()[0]}, {"udp4", routes()[0]}}
	for _, p := range paths {
		to := netip.AddrPortFrom(netip.MustParseAddr(p.ips[strings.Count(p.network, "6")]), p.port)
		stops = append(stops, lab.Load{Rate: rate, Timeout: patient, Ask: func(ctx context.Context) (lab.Answer, error) {
			return d.world.Client.Ask(ctx, p.network, to)
		}}.Start())
	}
	err := d.replacePod(ctx)
	d.printf("\n")
	for i, stop := range stops {
		r := stop()
		d.asked += r.Sent
		d.wrong += r.Lost()
		d.printf("  %s: %s\n", paths[i].network, strings.ReplaceAll(r.String(), "\n", "\n        "))
		if err == nil && r.Answered["pod-4"] == 0 {
			d.complain("pod-4 got no connection")
		}
	}
	return err
}

// replacePod makes its changes with a moment between them, so that there is load in each state of the world.
func (d *demo) replacePod(ctx context.Context) error {
	for _, step := range []func() error{
		func() error { return nil },
		func() error {
			if _, err := d.world.AddPod(ctx, "pod-4"); err != nil {
				return err
			}
			d.printf("  pod-4 is ready and pod-1 terminating in the EndpointSlices\n")
			start := time.Now()
			if err := errors.Join(d.write("ending"), d.waitFor(ctx, `msg=applied family=IPv6`)); err != nil {
				return err
			}
			d.printf("  vmapd, which reads files once a second, has programmed the change after %v\n",
				time.Since(start).Round(time.Millisecond))
			return nil
		},
		func() error { return d.write("after") }, // pod-1 gets no connections by now: nothing is to be programmed
		func() error {
			d.printf("  pod-1 is removed\n")
			return d.world.RemovePod("pod-1")
		},
	} {
		const moment = 750 * time.Millisecond
		if err := errors.Join(step(), lab.Pause(ctx, moment)); err != nil {
			return err
		}
	}
	return nil
}
