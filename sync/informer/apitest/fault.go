package apitest

import (
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
)

// Fault is a way to answer wrongly, by the server, or by what stands before it.
type Fault int

// The faults that answers can have.
const (
	NoFault     Fault = iota
	CutShort          // each body, list or events, is cut in the middle, with the connection
	EndsEarly         // watches end without an error, before the bookmark of the initial list or after another
	NoEvents          // watches end at once without an error
	HTML              // 200 with a web page, like a proxy's login page
	NoBody            // 200 with an empty body
	EmptyObject       // 200 with {}
	Garbage           // 200 with invalid JSON
	NoBookmark        // streamed lists have all objects, and never the bookmark that ends them
	NoStreams         // streamed lists end with an error event, as with an etcd that can't report progress
	Mute              // requests for streamed lists get no response, not even its head
)

// Fault spoils responses about one resource from now on, lists and watches alike. [NoFault]
// ends it for later requests.
func (s *Server) Fault(r Resource, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores[r].fault = f
}

// nonsense writes a response that is not an API server's, for the faults that ask for it.
func (x *exchange) nonsense() bool {
	switch x.fault {
	case HTML:
		x.write(http.StatusOK, "text/html; charset=utf-8", []byte("<!DOCTYPE html><title>Log in</title>"))
	case NoBody:
		x.write(http.StatusOK, runtime.ContentTypeJSON, nil)
	case EmptyObject:
		x.write(http.StatusOK, runtime.ContentTypeJSON, []byte("{}"))
	case Garbage:
		x.write(http.StatusOK, runtime.ContentTypeJSON, []byte(`{"items":[{{`))
	default:
		return false
	}
	return true
}

// send writes a part of the response, as far as the fault permits. It ignores errors: the
// client is gone.
func (x *exchange) send(b []byte) {
	if len(b) == 0 {
		return
	}
	if x.fault == CutShort {
		b = b[:len(b)/2]
	}
	_, _ = x.w.Write(b)
	flush(x.w)
	if x.fault == CutShort {
		panic(http.ErrAbortHandler)
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func readAll(r *http.Request) ([]byte, error) {
	const most = 3 << 20 // as the real server
	return io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
}
