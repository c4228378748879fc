package apitest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// Resource is the plural name of a kind in URLs.
type Resource string

// The resources that a [Server] has.
const (
	Services       Resource = "services"
	EndpointSlices Resource = "endpointslices"
	Nodes          Resource = "nodes"
	ServiceCIDRs   Resource = "servicecidrs"
)

// Options choose between versions of the real API server.
type Options struct {
	// NoWatchList refuses to stream the initial list (KEP-3157), as servers before
	// 1.32 do.
	NoWatchList bool
	// NoClusterIPSelector refuses to select Services by spec.clusterIP, as servers do
	// that are older still.
	NoClusterIPSelector bool
	// MaxPage is how many objects a list holds at most if the client gives a limit.
	// Default: as many as the client allows.
	MaxPage int
}

// Server is an API server. All methods may be called at any time.
type Server struct {
	opts Options
	addr string

	mu       sync.Mutex
	http     *http.Server // nil while the port is closed
	closed   bool
	away     Outage
	rv       uint64
	stores   map[Resource]*store
	requests []Request
	drop     chan struct{} // closed to end the watches of now in the orderly way
	cut      chan struct{} // closed to end them without a word
	pages    map[string][]*entry
	tokens   int // given out for pages so far
}

// Request is a request that the server got.
type Request struct {
	Method   string
	Path     string
	Query    url.Values
	Header   http.Header
	Resource Resource // empty for other paths
	Watch    bool
}

// NewServer starts a server on a free port of the loopback interface. It must be
// closed.
func NewServer(o Options) (*Server, error) {
	s := &Server{
		opts:   o,
		rv:     1000, // any number: clients must not read anything into it
		stores: make(map[Resource]*store),
		drop:   make(chan struct{}),
		cut:    make(chan struct{}),
		pages:  make(map[string][]*entry),
	}
	for _, r := range []Resource{Services, EndpointSlices, Nodes, ServiceCIDRs} {
		s.stores[r] = newStore()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	s.addr = l.Addr().String()
	s.serve(l)
	return s, nil
}

// serve needs the lock, or a server that no one else knows yet.
func (s *Server) serve(l net.Listener) {
	s.http = &http.Server{Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: time.Minute}
	go func(h *http.Server) {
		// It ends with http.ErrServerClosed, and there is no one to tell otherwise.
		_ = h.Serve(l)
	}(s.http)
}

// Close ends the server and all requests.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.hangUp()
}

// hangUp closes the port and all connections.
func (s *Server) hangUp() {
	close(s.cut)
	s.cut = make(chan struct{})
	if s.http != nil {
		// What can fail is closing a port that is being closed.
		_ = s.http.Close()
		s.http = nil
	}
}

// URL is where the server answers, also after an outage.
func (s *Server) URL() string { return "http://" + s.addr }

// Config is a client configuration for the server, with no limit on the rate of
// requests.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.URL(), QPS: -1} }

// Set creates or replaces an object. It takes pointers to the API types of the four
// resources, and returns the object's new resource version.
func (s *Server) Set(obj runtime.Object) string {
	r := resourceOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	return s.stores[r].set(newEntry(obj, s.rv))
}

// Delete deletes the object of obj's type, namespace and name, if there is one.
func (s *Server) Delete(obj runtime.Object) {
	r := resourceOf(obj)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.stores[r].delete(newEntry(obj, s.rv))
}

// Bookmark tells all watches that allow it of the current resource version, which
// is also advanced, as by a change of some other object.
func (s *Server) Bookmark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	for _, st := range s.stores {
		st.append(event{kind: bookmark, rv: s.rv})
	}
	return formatRV(s.rv)
}

// DropWatches ends all watches of now in the orderly way, as a server does when their
// time is over or when it shuts down.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.drop)
	s.drop = make(chan struct{})
}

// Gone says how a server reports that a resource version has expired. Real ones do
// either.
type Gone int

// The ways to report an expired resource version.
const (
	GoneStatus Gone = iota // the watch is refused with HTTP status 410
	GoneEvent              // the watch is accepted, and its first event is an error
)

// Expire makes all resource versions of now too old to watch from, as when etcd is
// compacted. Watches that are up to date go on.
func (s *Server) Expire(how Gone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	clear(s.pages)
	for _, st := range s.stores {
		st.expire(s.rv, how)
	}
}

// Outage is a way for a server to be away.
type Outage int

// The states of a server.
const (
	Up          Outage = iota
	Unavailable        // answers 503
	HangingUp          // accepts connections and closes them
	Refusing           // the port is closed
)

// Outage makes the server go away, or come back with everything it had. All
// watches end without a word when it goes.
func (s *Server) Outage(how Outage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("server is closed")
	}
	s.away = how
	if how != Up {
		close(s.cut)
		s.cut = make(chan struct{})
	}
	if how == Refusing {
		s.hangUp()
		return nil
	}
	if s.http != nil {
		return nil
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen for the API again: %w", err)
	}
	s.serve(l)
	return nil
}

// Stall makes requests for one resource wait, until it is called again with false.
func (s *Server) Stall(r Resource, stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores[r].stall(stalled)
}

// Refuse makes requests for one resource fail with an HTTP status: 404 as from a
// server that doesn't know it, 403 as without permission. 0 ends that.
func (s *Server) Refuse(r Resource, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores[r].refuse = status
}

// Requests returns the requests of one resource so far, in the order of arrival; of
// all paths if r is empty.
func (s *Server) Requests(r Resource) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r == "" {
		return slices.Clone(s.requests)
	}
	var out []Request
	for _, q := range s.requests {
		if q.Resource == r {
			out = append(out, q)
		}
	}
	return out
}

// Watching returns how many watches of a resource are open now.
func (s *Server) Watching(r Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stores[r].watching
}

func resourceOf(obj runtime.Object) Resource {
	switch obj.(type) {
	case *corev1.Service:
		return Services
	case *discoveryv1.EndpointSlice:
		return EndpointSlices
	case *corev1.Node:
		return Nodes
	case *networkingv1.ServiceCIDR:
		return ServiceCIDRs
	}
	panic(fmt.Sprintf("apitest: no resource for %T", obj))
}
