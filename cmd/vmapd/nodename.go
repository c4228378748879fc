package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const (
	// registration is how long the kubelet of a node that has just booted may take to register
	// the Node, before its absence is reported.
	registration = 5 * time.Second
	// namedNodes is how many of the cluster's Nodes the report names.
	namedNodes = 5
)

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
		"no endpoint counts as local for traffic policies, and the Node's addresses, pod ranges and zone are not known", n.cluster.NodeName)
	if others := n.others(ctx); others != "" {
		text += ". " + others
	}
	n.log.LogAttrs(ctx, slog.LevelWarn, "not ready", slog.String("reason", text))
	n.events.Node(events.Warning, events.ReasonNoNode, text)
	select {
	case <-ctx.Done():
	case <-n.found:
		n.log.LogAttrs(ctx, slog.LevelInfo, "the cluster has this node's Node now", slog.String("node", n.cluster.NodeName))
	}
}

// others names Nodes of the cluster that are probably meant, or else some of those that there
// are. It costs few small requests, since a wrong name may be that of all nodes at a time.
func (n *nodeCheck) others(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, registration)
	defer cancel()
	var similar []string
	for _, name := range otherNames(n.cluster.NodeName) {
		similar = append(similar, n.names(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})...)
	}
	if len(similar) > 0 {
		return "The cluster has a Node " + strings.Join(similar, ", ")
	}
	if some := n.names(ctx, metav1.ListOptions{Limit: namedNodes}); len(some) > 0 {
		return "Some of its Nodes: " + strings.Join(some, ", ")
	}
	return ""
}

// names returns the names of Nodes, or none if they can't be read.
func (n *nodeCheck) names(ctx context.Context, o metav1.ListOptions) (names []string) {
	list, err := n.cluster.Client.Nodes().List(ctx, o)
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// otherNames are those that this node may have in the cluster: the host's, and both without the
// domain.
func otherNames(name string) []string {
	names := []string{name}
	if host, err := config.HostNodeName(); err == nil {
		names = append(names, host)
	}
	for _, long := range slices.Clone(names) {
		short, _, _ := strings.Cut(long, ".")
		names = append(names, short)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(s string) bool { return s == name || s == "" })
}
