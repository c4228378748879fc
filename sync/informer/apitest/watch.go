package apitest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// watch streams events, each in a frame of its own: in JSON, a line.
func (s *Server) watch(x *exchange, st *store, sel selector) {
	initial, _ := strconv.ParseBool(x.query.Get("sendInitialEvents"))
	if initial && s.opts.NoWatchList {
		x.refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: `+
				`sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled`)
		return
	}
	if initial && x.fault == Mute {
		<-x.r.Context().Done()
		return
	}
	bookmarks, _ := strconv.ParseBool(x.query.Get("allowWatchBookmarks"))
	timeout := watchTimeout
	if seconds, err := strconv.Atoi(x.query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	from, err := parseRV(x.query.Get("resourceVersion"))
	if err != nil {
		x.refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}

	out := stream{exchange: x}
	s.mu.Lock()
	if from > s.rv && initial {
		s.mu.Unlock()
		x.tooLarge()
		return
	}
	if from != 0 && from < st.floor && !initial {
		how := st.how
		s.mu.Unlock()
		if how == GoneStatus {
			x.refuse(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
			return
		}
		out.gone()
		return
	}
	var entries []*entry
	rv := s.rv
	next := st.after(from)
	if from == 0 || initial {
		entries = st.list(sel)
		next = st.first + uint64(len(st.log))
	}
	drop, cut := s.drop, s.cut
	st.watching++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		st.watching--
		s.mu.Unlock()
	}()

	out.start()
	switch {
	case x.fault == NoEvents:
		return
	case x.fault == NoStreams && initial:
		out.failed(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"the required storage feature is disabled")
		return
	}
	var frames []byte
	for _, e := range entries {
		frames = append(frames, x.codec.frame("ADDED", e.encoded[x.codec]())...)
		if len(frames) > 64<<10 { // the client reads while the rest is made
			out.send(frames)
			frames = frames[:0]
		}
	}
	if initial && bookmarks && x.fault != EndsEarly && x.fault != NoBookmark {
		frames = append(frames, out.bookmark(rv, true)...)
	}
	out.send(frames)
	if x.fault == EndsEarly {
		if !initial {
			out.send(out.bookmark(from, false))
		}
		return
	}

	end := time.NewTimer(timeout)
	defer end.Stop()
	for {
		s.mu.Lock()
		behind := next < st.first
		var events []event
		if !behind {
			events = st.log[next-st.first:]
		}
		more, dropped := st.more, s.drop != drop
		s.mu.Unlock()
		if behind {
			out.gone()
			return
		}
		next += uint64(len(events))
		for _, e := range events {
			if dropped && e.rv > drop.rv {
				break
			}
			if e.rv > from || e.kind == replay {
				out.send(out.event(e, sel, bookmarks))
			}
		}
		if dropped {
			return
		}
		select {
		case <-more:
		case <-drop.done:
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-end.C:
			return
		case <-x.r.Context().Done():
			return
		}
	}
}

func parseRV(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	rv, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid resource version %q", s)
	}
	return rv, nil
}

// stream writes the events of one watch. It ignores errors: the client is gone.
type stream struct {
	*exchange
	started bool
}

func (o *stream) start() {
	if o.started {
		return
	}
	o.started = true
	mediaType := o.codec.info().MediaType
	if o.codec == inProtobuf {
		mediaType += ";stream=watch"
	}
	o.w.Header().Set("Content-Type", mediaType)
	o.w.WriteHeader(http.StatusOK)
	flush(o.w)
}

// event returns what e means to this watch, or nothing: an object that is selected no
// longer is deleted as far as the client is concerned.
func (o *stream) event(e event, sel selector, bookmarks bool) []byte {
	was, is := sel.matches(e.old), sel.matches(e.now)
	switch {
	case e.kind == bookmark && bookmarks:
		return o.bookmark(e.rv, false)
	case is && (was || e.kind == replay):
		return o.codec.frame("MODIFIED", e.now.encoded[o.codec]())
	case is:
		return o.codec.frame("ADDED", e.now.encoded[o.codec]())
	case was:
		return o.codec.frame("DELETED", newEntry(e.old.object, e.rv).encoded[o.codec]())
	}
	return nil
}

func (o *stream) bookmark(rv uint64, initial bool) []byte {
	kind, _ := o.kind()
	obj := newObject(kind)
	m := obj.(metav1.Object)
	m.SetResourceVersion(formatRV(rv))
	if initial {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return o.codec.frame("BOOKMARK", o.codec.encode(obj))
}

// gone ends the watch with an error event.
func (o *stream) gone() {
	o.start()
	o.failed(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
}

func (o *stream) failed(code int, reason metav1.StatusReason, text string) {
	var status runtime.Object = failure(code, reason, text)
	o.send(o.codec.frame("ERROR", o.codec.encode(status)))
}
