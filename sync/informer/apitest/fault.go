package apitest

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fault is a wrong answer, of the server or of what stands before it. An HTTP status is one, too: 404 as from a server
// that doesn't know the resource, 403 as without permission, 429 as from one that has too much to do, with a time to
// wait.
type Fault int

// The other faults that answers can have.
const (
	NoFault     Fault = iota
	Silent            // requests wait until there is another fault or none
	CutShort          // each body, list or events, is cut in the middle, with the connection
	NoBookmark        // streamed lists have all objects, and never the bookmark that ends them
	HTML              // 200 with a web page, like a proxy's login page
	EmptyObject       // 200 with {}
)

// nonsense are responses that are not an API server's.
var nonsense = map[Fault]struct{ mediaType, body string }{
	HTML:        {"text/html; charset=utf-8", "<!DOCTYPE html><title>Log in</title>"},
	EmptyObject: {runtime.ContentTypeJSON, "{}"},
}

// Fault spoils responses about one resource to requests from now on, lists and watches alike. [NoFault]
// ends it.
func (s *Server) Fault(r Resource, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[r] = f
	s.wake()
}

// waitForFault sets the fault of the response. While it is Silent, it waits; it stays so if the client is gone.
func (s *Server) waitForFault(x *exchange) {
	for {
		s.mu.Lock()
		x.fault = s.faults[x.Resource]
		changed := s.changed
		s.mu.Unlock()
		if x.fault != Silent {
			return
		}
		select {
		case <-changed:
		case <-x.Context().Done():
			return
		}
	}
}

// Write writes and flushes a part of the response, as far as the fault permits.
func (x *exchange) Write(b []byte) (int, error) {
	if x.fault == CutShort {
		b = b[:len(b)/2]
	}
	n, err := x.w.Write(b)
	_ = http.NewResponseController(x.w).Flush() // else the client is gone
	if x.fault == CutShort {
		panic(http.ErrAbortHandler)
	}
	return n, err
}
