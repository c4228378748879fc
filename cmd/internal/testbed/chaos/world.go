package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

const pollPause = 10 * time.Millisecond

// world is a node with pods, an API server and vmapd.
type world struct {
	*lab.World
	*bench.Rig
	o       *options
	backend string
}

func newWorld(ctx context.Context, o *options, backend string) (w *world, err error) {
	w = &world{o: o, backend: backend}
	if w.World, err = lab.New(ctx, lab.Config{Pods: pods, Ports: []uint16{podPort}}); err != nil {
		return nil, err
	}
	if w.Rig, err = bench.New(w.Node); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.setObjects()
	return w, nil
}

func (w *world) flags() []string {
	return append(w.Vmapd(w.backend), w.Flags(lab.NodeName, lab.PodRange4+","+lab.PodRange6)...)
}

func (w *world) launch(ctx context.Context) error { return w.Start(ctx, w.o.vmapd, w.flags()...) }

// start starts vmapd, and waits until it has programmed the Services.
func (w *world) start(ctx context.Context) error {
	if err := w.launch(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.patience)
	defer cancel()
	for _, p := range w.paths() {
		if err := w.answers(ctx, p.To, ""); err != nil {
			return fmt.Errorf("start: %w; %s", err, w.Log())
		}
	}
	return w.answers(ctx, probeVIP, w.Pods()[probeAtFirst].Name())
}

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

func (w *world) close() error { return errors.Join(w.Rig.Close(), w.World.Close()) }
