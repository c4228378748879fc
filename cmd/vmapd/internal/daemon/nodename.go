package daemon

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// registration is how long the kubelet of a node that has just booted may take to register the Node, before its absence
// is reported.
const registration = 5 * time.Second

// nodeCheck reports that the cluster has no Node with this node's name, and the end of that: a deletion later is no
// wrong name. It is a [reconcile.Observer].
type nodeCheck struct {
	*base
	known   bool
	missing *time.Timer // until the report, from the first round without the Node on
}

// Done implements [reconcile.Observer].
func (n *nodeCheck) Done(r reconcile.Round) {
	switch {
	case n.known:
	case r.Snapshot.Node().Known:
		n.known = true
		if n.missing != nil && !n.missing.Stop() { // it was reported
			n.log.Info("the cluster has this node's Node now", slog.String("node", n.nodeName))
		}
	case n.missing == nil:
		n.missing = time.AfterFunc(registration, n.report)
	}
}

func (n *nodeCheck) report() {
	text := fmt.Sprintf("the cluster has no Node %q: the name comes from --hostname-override, or is the host's. "+
		"Until there is one, no endpoint is local for traffic policies, and the Node's addresses, pod ranges and zone "+
		"are not known. \"kubectl get nodes\" lists the names", n.nodeName)
	n.log.Warn("not ready", slog.String("reason", text))
	n.events.Node(events.Warning, events.ReasonNoNode, text)
}
