package bench

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// World is a node of the lab with pods, and with an API server that has its Node.
type World struct {
	*lab.World
	*Rig
}

// NewWorld makes a world without a proxy, with pods that answer at a port.
func NewWorld(ctx context.Context, pods int, port uint16) (w *World, err error) {
	w = &World{}
	if w.World, err = lab.New(ctx, lab.Config{Pods: pods, Ports: []uint16{port}}); err != nil {
		return nil, err
	}
	if w.Rig, err = New(w.Node); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	w.API.Set(LabNode())
	return w, nil
}

// SetService writes a Service to the API server, with pods as its endpoints.
func (w *World) SetService(s *corev1.Service, pods ...*lab.Pod) {
	w.API.Set(s)
	for _, slice := range Slices(s, pods...) {
		w.API.Set(slice)
	}
}

// Close ends the proxy before what it uses.
func (w *World) Close() error { return errors.Join(w.Rig.Close(), w.World.Close()) }

// Answered asks until there is an answer, for a minute at most.
func Answered(ctx context.Context, ask func(context.Context) (lab.Answer, error)) error {
	const patience, pause = time.Minute, 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		asking, done := context.WithTimeout(ctx, time.Second)
		_, err := ask(asking)
		done()
		if err == nil || lab.Pause(ctx, pause) != nil {
			return err
		}
	}
}
