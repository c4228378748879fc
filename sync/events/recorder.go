package events

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

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
	// ServiceUID returns the UID of a Service, by which "kubectl describe service" finds its
	// events, or "" if there is no such Service. Run calls it before it creates an event, since
	// few Services ever have one. Without a UID, events have the Service's name in its place,
	// as kube-proxy's do, and only "kubectl events --for service/NAME" finds them.
	ServiceUID func(context.Context, model.NamespacedName) (types.UID, error)
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
	swept  time.Time // the last search of known for series that have ended
	limits limits
	ended  bool
}

// occurrence is the identity of a series of events.
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

// Node records an event about the node. The message is truncated to 1024 bytes.
//
// As in the kubelet's events, the UID is the Node's name, by which "kubectl describe node"
// finds it. As Nodes have no namespace, the event is in the namespace default.
func (r *Recorder) Node(eventType, reason, action, message string) {
	node := model.ObjectRef{Kind: "Node", NamespacedName: model.NamespacedName{Name: r.opts.NodeName}}
	r.record(occurrence{node, eventType, reason, action, cut(message, maxNote)}, false)
}

// Service records an event about a Service on this node: other nodes may record the same.
// The message is truncated to 1024 bytes.
func (r *Recorder) Service(name model.NamespacedName, eventType, reason, action, message string) {
	service := model.ObjectRef{Kind: kindService, NamespacedName: name}
	r.record(occurrence{service, eventType, reason, action, cut(message, maxNote)}, false)
}

// Dropped returns the number of events dropped so far.
func (r *Recorder) Dropped() uint64 { return r.dropped.Load() }

// record queues an event. A shared event exists once, however many nodes record it.
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
			return // one write has both
		}
	}
	if !r.enqueue(s, now) && isNew {
		// A repetition is not lost: the next write has its count.
		r.dropped.Add(1)
	}
}

// renew queues a shared event again, before the API server forgets it.
func (r *Recorder) renew(o occurrence) {
	if r.opts.Client == nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.known[o]
	if s == nil {
		s = &series{occurrence: o, shared: true, first: now}
	}
	s.count++
	s.last = now
	if !s.queued {
		r.enqueue(s, now) // if there is no room, the next time
	}
}

// enqueue reports whether there was room for s. The caller holds mu.
func (r *Recorder) enqueue(s *series, now time.Time) bool {
	ended := func(_ occurrence, s *series) bool { return now.Sub(s.last) > seriesWindow }
	if r.ended || r.known[s.occurrence] == nil && !room(r.known, maxSeries, &r.swept, now, ended) {
		return false
	}
	if !r.limits.allow(s.object, now) {
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
