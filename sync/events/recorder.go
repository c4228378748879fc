package events

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// Options of a Recorder.
type Options struct {
	// Client writes the events. It should have a rate limit of its own, so that events
	// can't hold up lists. nil: there is no API server, and events are logged for debugging
	// and nothing else.
	Client *client.Client
	// NodeName is the Node that Recorder.Node is about.
	NodeName string
	// ServiceUID returns the UID of a Service, by which "kubectl describe service" finds its
	// events; "" if that is not known. It may be called at any time, from Run. nil, or "":
	// events have the Service's name in its place, as kube-proxy's do, and are found by
	// "kubectl events --for service/NAME" only.
	ServiceUID func(model.NamespacedName) string
	Log        *slog.Logger
}

// Recorder writes events. Its methods may be called by several goroutines.
type Recorder struct {
	opts Options

	queue    chan *series
	pace     *rate.Limiter
	complain rate.Sometimes
	dropped  atomic.Uint64

	mu     sync.Mutex
	known  map[occurrence]*series
	swept  time.Time // known, of what is no series any more
	limits limits
	ended  bool
}

// occurrence is what makes two events the same.
type occurrence struct {
	object                          model.ObjectRef
	eventType, reason, action, note string
}

// New returns a Recorder. Events that are recorded before Run wait for it.
func New(o Options) *Recorder {
	return &Recorder{
		opts:     o,
		queue:    make(chan *series, queueLen),
		pace:     rate.NewLimiter(writeRate, writeBurst),
		complain: rate.Sometimes{First: 1, Interval: complainInterval},
		known:    map[occurrence]*series{},
		limits:   limits{byObject: map[model.ObjectRef]*rate.Limiter{}},
	}
}

// Node records an event about the node. The message is cut off after 1024 bytes.
//
// Its object has the Node's name for a UID, as the kubelet does, by which "kubectl describe
// node" finds it; as Nodes have no namespace, it is in the namespace default.
func (r *Recorder) Node(eventType, reason, action, message string) {
	node := model.ObjectRef{Kind: "Node", NamespacedName: model.NamespacedName{Name: r.opts.NodeName}}
	r.record(occurrence{node, eventType, reason, action, cut(message, maxNote)}, false)
}

// Service records an event about a Service that concerns this node: others may say the
// same of theirs. The message is cut off after 1024 bytes.
func (r *Recorder) Service(name model.NamespacedName, eventType, reason, action, message string) {
	service := model.ObjectRef{Kind: kindService, NamespacedName: name}
	r.record(occurrence{service, eventType, reason, action, cut(message, maxNote)}, false)
}

// Dropped returns how many events are lost so far.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// record queues an event. If others record the same of a shared one, there is only one of it.
func (r *Recorder) record(o occurrence, shared bool) {
	r.opts.Log.LogAttrs(context.Background(), slog.LevelDebug, "event", slog.String("type", o.eventType), slog.String("reason", o.reason),
		slog.String("action", o.action), slog.String("regarding", o.object.String()), slog.String("note", o.note))
	if r.opts.Client == nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known[o]
	isNew := s == nil || now.Sub(s.last) > seriesWindow
	switch {
	case isNew:
		s = &series{occurrence: o, shared: shared, first: now, last: now, count: 1}
	case shared:
		return
	default:
		s.count++
		s.last = now
		if s.queued {
			return // one write tells of both
		}
	}
	if !r.enqueue(s, now) && isNew {
		// What happened again is not lost: the next write has the count.
		r.dropped.Add(1)
	}
}

// enqueue reports whether there was room for s. The caller holds mu.
func (r *Recorder) enqueue(s *series, now time.Time) bool {
	if r.ended || !r.remember(s, now) || !r.limits.allow(s.object, now) {
		return false
	}
	select {
	case r.queue <- s:
		r.known[s.occurrence] = s
		s.queued = true
		return true
	default:
		return false
	}
}
