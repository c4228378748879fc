package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// The objects of TestHistories, and their changes.

const (
	historyServices = 3
	// purgeTime is how long a client of an endpoint that is gone may be remembered.
	purgeTime = 2 * time.Second
)

// sharedIP is an external IP that several Services ask for, with the same ports: the oldest has it.
var sharedIP = [...]string{model.IPv4: "192.168.99.60", model.IPv6: "fd00:192:168:99::60"}

func clusterIP(f model.Family, n int) string {
	return fmt.Sprintf([...]string{model.IPv4: "172.30.0.%d", model.IPv6: "fd00:172:30::%d"}[f], n)
}

// objects are those of the beginning.
func (h *historian) objects() []modeltest.Object {
	r := h.random(2)
	list := []modeltest.Object{r.node(), modeltest.NewServiceCIDR("kubernetes", lab.ClusterIPRange4, lab.ClusterIPRange6)}
	for i := range historyServices {
		list = append(list, r.sharer(i))
		for _, f := range model.Families {
			list = append(list, r.fixedSlice(i, f))
		}
	}
	return list
}

func (r randomLab) node() modeltest.Node {
	return modeltest.OurNode().In(choose(r, "zone-a", "zone-a", "zone-b")).Pods("10.0.0.2/31", "fd00:10::2/127")
}

// sharer is a Service that may share an address.
func (r randomLab) sharer(i int) modeltest.Service {
	s := r.service(fmt.Sprintf("default/web-%d", i), i)
	if r.IntN(2) == 0 {
		s = s.External(append(s.ExternalIPs, sharedIP[:]...)...)
	}
	return s
}

// fixedSlice is a slice of endpoints whose node does not change.
func (r randomLab) fixedSlice(service int, f model.Family) modeltest.Slice {
	s := r.slice(fmt.Sprintf("default/web-%d", service), f)
	hints := r.IntN(3)
	s.Endpoints = nil
	for i := range historyPods {
		if r.IntN(3) == 0 {
			continue
		}
		node, zone := modeltest.NodeName, "zone-a"
		if i >= remotePod {
			node, zone = "node-2", "zone-b"
		}
		options := []func(*model.SliceEndpoint){modeltest.OnNode(node)}
		switch hints {
		case 1:
			options = append(options, modeltest.ForZones(zone))
		case 2:
			options = append(options, modeltest.ForNodes(choose(r, modeltest.NodeName, "node-2")), modeltest.ForZones(zone))
		}
		if r.IntN(5) == 0 {
			terminating := r.IntN(2) == 0
			options = append(options, modeltest.Conditions(!terminating && r.IntN(2) == 0, r.IntN(2) == 0, terminating))
		}
		s = s.Endpoint(modeltest.Pod(f, i).String(), options...)
	}
	if r.IntN(6) == 0 {
		s = s.Local([]string{lab.NodeIP4, lab.NodeIP6}[f]) // in the node's own network
	}
	return s
}

// change changes objects until ctx ends: most often endpoints. After some changes there is a calm, in which no later
// change explains what the last one did.
func (h *historian) change(ctx context.Context) {
	const longest, inARow, calm = 40, 8, 400 // milliseconds from one change to the next; changes; milliseconds
	r := h.random(3)
	for {
		pause := 1 + r.IntN(longest)
		if r.IntN(inARow) == 0 {
			pause = calm
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(pause) * time.Millisecond):
		}
		i, f := r.IntN(historyServices), choose(r, model.IPv4, model.IPv6)
		var o modeltest.Object
		gone := false
		switch what := r.IntN(40); {
		case what == 0:
			o, gone = r.sharer(i), true
		case what == 1:
			o, gone = r.fixedSlice(i, f), true
		case what == 2:
			o = r.node()
		case what < 12:
			o = r.sharer(i)
		default:
			o = r.fixedSlice(i, f)
		}
		h.state.Update(reconcile.Change{}, func(b *model.Builder) {
			if gone {
				o.Delete(b)
			} else {
				o.Set(b)
			}
		})
	}
}
