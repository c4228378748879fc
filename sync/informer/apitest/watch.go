package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watch streams events: one line of JSON for each.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, sel selector) {
	query := r.URL.Query()
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	if initial && s.opts.NoWatchList {
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			`ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled`)
		return
	}
	bookmarks, _ := strconv.ParseBool(query.Get("allowWatchBookmarks"))
	timeout := watchTimeout
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	from, err := parseRV(query.Get("resourceVersion"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}

	st := s.stores[t.resource]
	out := stream{w: w, t: t}
	s.mu.Lock()
	if from != 0 && from < st.floor && !initial {
		how := st.how
		s.mu.Unlock()
		if how == GoneStatus {
			refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
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
	for _, e := range entries {
		out.object("ADDED", e.json)
	}
	if initial && bookmarks {
		out.bookmark(rv, true)
	}
	out.flush()

	end := time.NewTimer(timeout)
	defer end.Stop()
	for {
		s.mu.Lock()
		behind := next < st.first
		var events []event
		if !behind {
			events = st.log[next-st.first:]
		}
		more := st.more
		s.mu.Unlock()
		if behind {
			out.gone()
			return
		}
		next += uint64(len(events))
		for _, e := range events {
			out.event(e, sel, bookmarks)
		}
		if len(events) > 0 {
			out.flush()
		}
		select {
		case <-more:
		case <-drop:
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-end.C:
			return
		case <-r.Context().Done():
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

// stream writes the events of one watch. What can't be written is not missed by
// anyone.
type stream struct {
	w       http.ResponseWriter
	t       target
	started bool
}

func (o *stream) start() {
	if !o.started {
		o.started = true
		o.w.Header().Set("Content-Type", "application/json")
		o.w.WriteHeader(http.StatusOK)
	}
}

func (o *stream) flush() { _ = http.NewResponseController(o.w).Flush() }

func (o *stream) object(kind string, object []byte) {
	_, _ = fmt.Fprintf(o.w, `{"type":%q,"object":%s}`+"\n", kind, object)
}

// event writes what e means to this watch: an object that is selected no longer is
// deleted as far as the client is concerned.
func (o *stream) event(e event, sel selector, bookmarks bool) {
	was, is := sel.matches(e.old), sel.matches(e.now)
	switch {
	case e.kind == bookmark:
		if bookmarks {
			o.bookmark(e.rv, false)
		}
	case is && was:
		o.object("MODIFIED", e.now.json)
	case is:
		o.object("ADDED", e.now.json)
	case was:
		o.object("DELETED", withRV(e.old.json, e.rv))
	}
}

func (o *stream) bookmark(rv uint64, initial bool) {
	meta := map[string]any{"resourceVersion": formatRV(rv)}
	if initial {
		meta["annotations"] = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": o.t.version, "kind": strings.TrimSuffix(o.t.kind, "List"), "metadata": meta,
	})
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	o.object("BOOKMARK", body)
}

// gone ends the watch with an error event.
func (o *stream) gone() {
	o.start()
	o.object("ERROR", statusJSON(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
	o.flush()
}
