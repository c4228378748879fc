package events

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// Options of a Recorder.
type Options struct {
	// Client writes the events. It should have a rate limit of its own, so that events
	// can't delay lists. If it is nil, events are only logged at debug level.
	Client *client.Client
	// NodeName is the Node that Recorder.Node is about.
	NodeName string
	Log      *slog.Logger
}

// Recorder records events. Its methods may be called by several goroutines.
type Recorder struct {
	// ServiceUID returns the UID of a Service, by which "kubectl describe service" finds its events, or "" if it is not
	// known. Then events have the Service's name in its place, as kube-proxy's do.
	ServiceUID func(model.NamespacedName) string

	opts        Options
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

const (
	kindService = "Service"
	// maxNote is the API server's limit for a text (events.k8s.io/v1), in bytes.
	maxNote = 1024
)

// New returns a Recorder, which writes events from now on.
func New(o Options) *Recorder {
	quiet := logr.Discard() // the sink logs what can't be written
	b := record.NewBroadcaster(record.WithContext(klog.NewContext(context.Background(), quiet)))
	source := corev1.EventSource{Component: Controller, Host: o.NodeName}
	r := &Recorder{opts: o, broadcaster: b}
	r.recorder = b.NewRecorder(runtime.NewScheme(), source).WithLogger(quiet)
	if o.Client != nil {
		b.StartRecordingToSink(newSink(o))
	}
	return r
}

// Run waits until ctx ends. Events that are not written by then are dropped.
func (r *Recorder) Run(ctx context.Context) {
	<-ctx.Done()
	r.broadcaster.Shutdown()
}

// Node records an event about the node. The message is truncated to 1024 bytes. As in the kubelet's events, the UID is
// the Node's name, and the namespace is default.
func (r *Recorder) Node(reason, message string) {
	node := model.ObjectRef{Kind: "Node", NamespacedName: model.NamespacedName{Name: r.opts.NodeName}}
	r.record(node, false, reason, message)
}

// Service records an event about a Service on this node: other nodes may record the same.
// The message is truncated to 1024 bytes.
func (r *Recorder) Service(name model.NamespacedName, reason, message string) {
	r.record(model.ObjectRef{Kind: kindService, NamespacedName: name}, false, reason, message)
}

// record records an event: again, if nothing new has happened.
func (r *Recorder) record(o model.ObjectRef, again bool, reason, message string) {
	r.opts.Log.Debug("event", slog.String("type", eventType(reason)),
		slog.String("reason", reason), slog.String("regarding", o.String()), slog.String("note", message))
	uid := ""
	if o.Kind == kindService {
		uid = r.ServiceUID(o.NamespacedName)
	}
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		UID: types.UID(cmp.Or(uid, o.NamespacedName.String())),
	}
	var notes map[string]string
	if again {
		notes = map[string]string{renewal: ""}
	}
	r.recorder.AnnotatedEventf(about, notes, eventType(reason), reason, "%s", cut(message, maxNote))
}

// cut truncates s to n bytes, at the end of a character.
func cut(s string, n int) string {
	const dots = "…"
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len(dots)], "") + dots
}
