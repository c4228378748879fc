package apitest

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Resource is the plural name of a kind in URLs.
type Resource string

// The resources whose objects a [Server] has.
const (
	Services       Resource = "services"
	EndpointSlices Resource = "endpointslices"
	Nodes          Resource = "nodes"
	ServiceCIDRs   Resource = "servicecidrs"
	Pods           Resource = "pods"

	events Resource = "events" // see Server.Events
)

// Options choose between versions and configurations of the real API server.
type Options struct {
	// NoWatchList refuses to stream the initial list (KEP-3157), as servers before
	// 1.32 do.
	NoWatchList bool
	// NoClusterIPSelector refuses to select Services by spec.clusterIP, as still older
	// servers do.
	NoClusterIPSelector bool
	// History is how many events of each resource are kept, with their objects; older
	// resource versions have expired. Default: 65,536.
	History int
	// JSONOnly responds in JSON, also if the client prefers another format.
	JSONOnly bool
	// TLS serves HTTPS, and HTTP/2.
	TLS bool
	// Authenticate refuses clients with 401 without the token.
	Authenticate bool
	// Rules are the clients' permissions (RBAC); other requests are refused with 403.
	// Default: clients may do everything.
	Rules []rbacv1.PolicyRule
}

// Server is an API server. All methods may be called at any time.
type Server struct {
	opts Options
	addr string
	gate gate // closed while frozen

	mu       sync.Mutex
	http     *http.Server // nil while the port is closed
	listener net.Listener
	closed   bool
	away     Outage
	rv       uint64
	stores   map[Resource]*store
	requests []Request
	drop     *drop
	cut      chan struct{} // closed to end them without a word

	identity identity
	rules    []rbacv1.PolicyRule
	asked    map[Access]bool
	denied   []Access
	events   []*eventsv1.Event
}

// Request is a request that the server got.
type Request struct {
	Method   string
	Path     string
	Query    url.Values
	Header   http.Header
	Proto    string   // as in HTTP/2.0
	Resource Resource // empty if the server has no such objects
	Watch    bool
	Time     time.Time // of arrival
}

// NewServer starts a server on a free port of the loopback interface. It must be
// closed.
func NewServer(o Options) (*Server, error) {
	s := &Server{
		opts:   o,
		rv:     1000, // any number: clients must not read anything into it
		stores: make(map[Resource]*store),
		drop:   &drop{done: make(chan struct{})},
		cut:    make(chan struct{}),
		rules:  o.Rules,
		asked:  make(map[Access]bool),
	}
	for _, r := range []Resource{Services, EndpointSlices, Nodes, ServiceCIDRs, Pods} {
		s.stores[r] = newStore(cmp.Or(o.History, 1<<16))
	}
	var err error
	if s.identity, err = newIdentity(); err != nil {
		return nil, err
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
	s.http = &http.Server{
		Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{s.identity.pair}}, ErrorLog: silent(),
	}
	l = gatedListener{l, &s.gate}
	s.listener = l
	go func(h *http.Server) {
		// It ends with http.ErrServerClosed, and there is no one to tell otherwise.
		if s.opts.TLS {
			_ = h.ServeTLS(l, "", "")
		} else {
			_ = h.Serve(l)
		}
	}(s.http)
}

// Close ends the server and all requests.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.hangUp()
	s.gate.set(false)
}

// hangUp closes the port and all connections.
func (s *Server) hangUp() {
	close(s.cut)
	s.cut = make(chan struct{})
	if s.http != nil {
		// Errors mean that it is closed already. The listener needs a close of its own: the
		// server may not have it yet.
		_ = s.listener.Close()
		_ = s.http.Close()
		s.http = nil
	}
}

// URL is where the server answers, also after an outage.
func (s *Server) URL() string {
	if s.opts.TLS {
		return "https://" + s.addr
	}
	return "http://" + s.addr
}

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

// Encode encodes all objects for clients that take protobuf; otherwise that is done when a client first wants one.
func (s *Server) Encode() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stores {
		for _, e := range st.objects {
			e.encoded[inProtobuf]()
		}
	}
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

// drop is the orderly end of all watches that began before it.
type drop struct {
	done chan struct{} // closed when they are to end
	rv   uint64        // set before: the version of the last event that they send
}

// DropWatches ends all watches of now in the orderly way, as a server does when their
// time is over or when it shuts down: each sends first what has happened until now.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop.rv = s.rv
	close(s.drop.done)
	s.drop = &drop{done: make(chan struct{})}
}

// Disconnect closes all connections of now; new ones are welcome.
func (s *Server) Disconnect() { s.gate.disconnect() }

// Outage is a way for a server to be away.
type Outage int

// The states of a server.
const (
	Up          Outage = iota
	Unavailable        // answers 503
	HangingUp          // accepts connections and closes them
	Refusing           // the port is closed
	Frozen             // accepts connections, and no byte moves, not even on those that are open
)

// Outage makes the server go away, or come back with everything it had. All
// watches end without a word when it goes, except that Frozen is a network that
// loses all packets: the watches of before go on when it comes back.
func (s *Server) Outage(how Outage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("server is closed")
	}
	s.away = how
	s.gate.set(how == Frozen)
	switch how {
	case Up, Frozen:
	case Refusing:
		s.hangUp()
		return nil
	default:
		close(s.cut)
		s.cut = make(chan struct{})
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
// server that doesn't know it, 403 as without permission, 429 as from one that has too
// much to do, with a time to wait. 0 ends that.
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
	for r, kind := range kinds {
		if kind == kindOf(obj) {
			return r
		}
	}
	panic(fmt.Sprintf("apitest: no resource for %T", obj))
}
