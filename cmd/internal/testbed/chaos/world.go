package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

const pollPause = 10 * time.Millisecond

// world is a node with pods, an API server and vmapd.
type world struct {
	*lab.World
	o          *options
	backend    string
	server     *apitest.Server
	folder     string
	kubeconfig string
	daemon     *lab.Daemon // the last one
	died       time.Time   // the other Node, if it did
}

func newWorld(ctx context.Context, o *options, backend string) (w *world, err error) {
	w = &world{o: o, backend: backend}
	if w.World, err = lab.New(ctx, lab.Config{Pods: pods, Ports: []uint16{podPort}}); err != nil {
		return w, err
	}
	if w.folder, err = os.MkdirTemp("", "vmapd-chaos-"); err != nil {
		return w, err
	}
	err = w.Node.Do(func() (err error) {
		w.server, err = apitest.NewServer(apitest.Options{})
		return err
	})
	if err != nil {
		return w, err
	}
	w.setObjects()
	w.kubeconfig, err = w.server.Kubeconfig(w.folder)
	return w, err
}

// kubeProxy is a backend of one fault only.
const kubeProxy = "kube-proxy nftables"

// daemonArgs are the flags of a daemon.
func (w *world) daemonArgs(socket string) []string {
	args := append([]string{"--backend", w.backend}, "--socket", filepath.Join(w.folder, socket))
	if w.backend == kubeProxy {
		args = []string{"--proxy-mode", "nftables"}
	}
	return append(args, "--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "--hostname-override", lab.NodeName,
		"--kubeconfig", w.kubeconfig, "--conntrack-max-per-core", "0")
}

// launch starts vmapd, or kube-proxy.
func (w *world) launch(ctx context.Context) (err error) {
	program := w.o.vmapd
	if w.backend == kubeProxy {
		program = w.o.kubeProxy
	}
	w.daemon, err = w.Node.Start(ctx, program, w.daemonArgs("vmapd.sock")...)
	return err
}

// start starts vmapd, and waits until it has programmed the Services.
func (w *world) start(ctx context.Context) error {
	if err := w.launch(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.patience)
	defer cancel()
	for _, p := range paths() {
		if err := w.answers(ctx, p.to, ""); err != nil {
			return fmt.Errorf("start: %w; the end of vmapd's log:\n%s", err, w.lastLog())
		}
	}
	return w.answers(ctx, probeVIP, podName(probeAtFirst))
}

// signal sends vmapd a signal.
func (w *world) signal(s os.Signal) error { return w.daemon.Process.Signal(s) }

// answers waits until an address answers, and it is the pod, if one is named.
func (w *world) answers(ctx context.Context, to netip.AddrPort, pod string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, w.o.within)
		a, err := w.Client.Ask(asking, "tcp", to)
		cancel()
		switch {
		case err == nil && (pod == "" || a.Pod == pod):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%v answered %q, want %q: %w", to, a.Pod, pod, err)
		}
		time.Sleep(pollPause)
	}
}

// rules lists the node's rules without counters.
func (w *world) rules(ctx context.Context) (string, error) {
	list := "nft --stateless list ruleset"
	if w.backend == "iptables" {
		list = "iptables-save; ip6tables-save"
	}
	out, err := w.Node.Command(ctx, "sh", "-ec", list).Output()
	// Comments have times and process IDs.
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if strings.HasPrefix(line, ":") {
			line = strings.Join(strings.Fields(line)[:2], " ") + "\n"
		}
		kept.WriteString(line)
	}
	return kept.String(), err
}

// shell runs commands in the node, until one fails.
func (w *world) shell(ctx context.Context, commands string) error {
	out, err := w.Node.Command(ctx, "sh", "-ec", commands).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", commands, err, out)
	}
	return nil
}

func (w *world) close() error {
	var errs []error
	if w.daemon != nil {
		_ = w.daemon.End(os.Kill)
	}
	if w.server != nil {
		w.server.Close()
	}
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	if w.World != nil {
		errs = append(errs, w.World.Close())
	}
	return errors.Join(errs...)
}

// lastLog returns the last lines of what vmapd has written.
func (w *world) lastLog() string {
	const most = 4000
	text := w.daemon.Log.String()
	return text[max(0, len(text)-most):]
}
