package apitest

import (
	"bufio"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// watch streams events until the client goes or has to. A part that is sent has whole events, each in a frame of
// its own: in JSON, a line.
func (s *Server) watch(x *exchange) {
	initial, bookmarks := x.flag("sendInitialEvents"), x.flag("allowWatchBookmarks")
	if initial && s.opts.NoWatchList {
		x.refuse(failure(http.StatusUnprocessableEntity, ""))
		return
	}
	s.mu.Lock()
	began, next, wanted := s.cached(), x.from+1, x.from
	if x.query.Get("resourceVersion") == "" {
		wanted = s.rv // of etcd
	}
	expired := !initial && x.from != 0 && x.from < began-uint64(len(s.log))
	stored := func(func(*entry) bool) {} // none
	if initial || x.from == 0 {
		stored, next = of(s.at(began), x.Resource), began+1
	}
	s.watching[x.Resource]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watching[x.Resource]--
	}()
	switch {
	case expired:
		x.refuse(apierrors.NewResourceExpired("too old resource version"))
		return
	case initial && wanted > began:
		x.refuse(tooLarge(wanted, began))
		return
	}

	out := x.stream()
	for e := range stored {
		if x.selects(e) {
			out.sendEntry(watch.Added, e)
		}
	}
	if initial && bookmarks && x.fault != NoBookmark {
		out.bookmark(began)
	}
	for {
		_ = out.Flush() // else the client is gone
		s.mu.Lock()
		forgotten, changed := s.rv-uint64(len(s.log)), s.changed
		var events []event
		if forgotten < next && next <= s.cached() {
			events = s.log[next-forgotten-1 : s.cached()-forgotten]
		}
		s.mu.Unlock()
		if next <= forgotten {
			out.send(watch.Error, encode(x.format, statusOf(apierrors.NewResourceExpired("too old resource version"))))
			_ = out.Flush()
			return
		}
		for _, e := range events {
			switch {
			case e.drop && next > began:
				_ = out.Flush()
				return
			default:
				out.change(e, next)
			}
			next++
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-x.Context().Done():
			return
		}
	}
}

// stream writes the events of one watch. It ignores errors: the client is gone.
type stream struct {
	*bufio.Writer
	*exchange
	encoder streaming.Encoder
}

func (x *exchange) stream() stream {
	mediaType := x.format.MediaType
	if mediaType == runtime.ContentTypeProtobuf {
		mediaType += ";stream=watch"
	}
	x.w.Header().Set("Content-Type", mediaType)
	x.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(x.w).Flush()
	w, format := bufio.NewWriterSize(x, 64<<10), x.format.StreamSerializer // the client reads while the rest is made
	return stream{w, x, streaming.NewEncoder(format.NewFrameWriter(w), format.Serializer)}
}

// change sends what an event means to this watch, if anything: an object that is selected no longer is deleted as far
// as the client is concerned, with the version of that.
func (o stream) change(e event, rv uint64) {
	was, is := o.selects(e.old), o.selects(e.now)
	switch {
	case is && was:
		o.sendEntry(watch.Modified, e.now)
	case is:
		o.sendEntry(watch.Added, e.now)
	case was:
		o.sendEntry(watch.Deleted, newEntry(e.old.object, rv))
	}
}

// bookmark ends the initial list.
func (o stream) bookmark(rv uint64) {
	obj := newObject(kinds[o.Resource]).(object)
	obj.SetResourceVersion(formatRV(rv))
	obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	o.send(watch.Bookmark, encode(o.format, obj))
}

func (o stream) sendEntry(kind watch.EventType, e *entry) {
	if o.format.MediaType == runtime.ContentTypeProtobuf {
		o.send(kind, e.protobuf)
		return
	}
	o.send(kind, encode(o.format, e.object))
}

func (o stream) send(kind watch.EventType, object []byte) {
	_ = o.encoder.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}})
}
