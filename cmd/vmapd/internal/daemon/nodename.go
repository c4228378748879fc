package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// registration is how long the kubelet of a node that has just booted may take to register the Node, before its absence
// is reported.
const registration = 5 * time.Second

// nodeCheck reports that the cluster has no Node with this node's name, and the end of that. It is
// a [reconcile.Observer].
type nodeCheck struct {
	cluster *informer.Source
	events  *events.Recorder
	log     *slog.Logger

	missing, found         chan struct{} // closed by the first round without the Node, and with it
	onceMissing, onceFound sync.Once
}

func newNodeCheck(cluster *informer.Source, e *events.Recorder, log *slog.Logger) *nodeCheck {
	return &nodeCheck{cluster: cluster, events: e, log: log, missing: make(chan struct{}), found: make(chan struct{})}
}

// Done implements [reconcile.Observer].
func (n *nodeCheck) Done(r reconcile.Round) {
	if r.Snapshot.Node().Known {
		n.onceFound.Do(func() { close(n.found) })
		return
	}
	n.onceMissing.Do(func() { close(n.missing) })
}

// Run reports until ctx ends, or the Node has been seen: a deletion later is no wrong name.
func (n *nodeCheck) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-n.found:
		return
	case <-n.missing:
	}
	select {
	case <-ctx.Done():
		return
	case <-n.found:
		return
	case <-time.After(registration):
	}
	text := fmt.Sprintf("the cluster has no Node %q: the name comes from --hostname-override, or is the host's. Until there is one, "+
		"no endpoint is local for traffic policies, and the Node's addresses, pod ranges and zone are not known. "+
		"\"kubectl get nodes\" lists the names", n.cluster.NodeName)
	n.log.LogAttrs(ctx, slog.LevelWarn, "not ready", slog.String("reason", text))
	n.events.Node(events.Warning, events.ReasonNoNode, text)
	select {
	case <-ctx.Done():
	case <-n.found:
		n.log.LogAttrs(ctx, slog.LevelInfo, "the cluster has this node's Node now", slog.String("node", n.cluster.NodeName))
	}
}
