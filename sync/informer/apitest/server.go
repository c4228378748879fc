package apitest

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// Options choose between versions and configurations of the real API server.
type Options struct {
	// NoWatchList refuses to stream the initial list (KEP-3157), as servers before
	// 1.32 do.
	NoWatchList bool
	// NoClusterIPSelector refuses to select Services by spec.clusterIP, as still older
	// servers do.
	NoClusterIPSelector bool
	// JSONOnly responds in JSON, also if the client prefers another format.
	JSONOnly bool
	// Secure serves HTTPS and HTTP/2, and refuses clients without the token with 401.
	Secure bool
	// Rules are the clients' permissions (RBAC); other requests are refused with 403.
	// Default: clients may do everything.
	Rules []rbacv1.PolicyRule
}

// firstVersion is any number: clients must not read anything into it.
const firstVersion = 1000

// Server is an API server. All methods may be called at any time.
type Server struct {
	opts  Options
	token string       // of all clients
	gate  sync.RWMutex // locked while frozen

	mu       sync.Mutex
	http     *httptest.Server
	away     Outage
	objects  *btree.BTree[*entry]
	rv       uint64
	cache    uint64  // the version that the watch cache has; 0: the last one
	log      []event // the last one has the version rv, and each one before it one less
	changed  chan struct{}
	faults   map[Resource]Fault
	watching map[Resource]int
	requests []Request
}

// NewServer starts a server on a free port of the loopback interface. It must be
// closed.
func NewServer(o Options) (*Server, error) {
	s := &Server{
		opts: o, token: rand.Text(),
		objects: btree.New(16, func(a, b *entry) bool { return a.key.compare(b.key) < 0 }),
		rv:      firstVersion, changed: make(chan struct{}),
		faults: map[Resource]Fault{}, watching: map[Resource]int{},
	}
	return s, s.listen("127.0.0.1:0")
}

// listen needs the lock, or a server that no one else knows yet.
func (s *Server) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	s.http = &httptest.Server{
		Listener:    listener{l, &s.gate},
		EnableHTTP2: true,
		Config: &http.Server{
			Handler: s.paths(), ReadHeaderTimeout: time.Minute,
			ErrorLog: log.New(io.Discard, "", 0), // its complaints about clients are no news to a test
		},
	}
	if s.opts.Secure {
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	return nil
}

// Close ends the server and all requests.
func (s *Server) Close() { _ = s.Outage(Refusing) } // which does not fail

// URL is where the server answers, also after an outage.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.http.URL
}

// Outage is how a server is away.
type Outage int

// The states of a server.
const (
	Up          Outage = iota
	Unavailable        // answers 503
	Refusing           // the port is closed
	Frozen             // accepts connections, and no byte moves, not even on those that are open
)

// Outage makes the server go away, or come back with everything it had. All
// watches end without a word when it goes, except that Frozen is a network that
// loses all packets: the watches of before go on when it comes back.
func (s *Server) Outage(how Outage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if how == s.away {
		return nil
	}
	if s.away == Frozen {
		s.gate.Unlock()
	}
	if s.away == Refusing {
		if err := s.listen(s.http.Listener.Addr().String()); err != nil {
			return err
		}
	}
	s.away = how
	switch how {
	case Up:
	case Unavailable:
		s.http.CloseClientConnections()
	case Refusing:
		// Errors mean that it is closed already. The listener needs a close of its own: the
		// server may not have it yet.
		_ = s.http.Listener.Close()
		_ = s.http.Config.Close()
	case Frozen:
		s.gate.Lock()
	}
	return nil
}

// Lag makes the watch cache lack the last changes, and those to come, as that of a server which a load balancer has in
// place of a quicker one: the connections to that break. Lists of no certain version come from etcd, which has all. 0:
// the cache catches up.
func (s *Server) Lag(changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache = 0; changes > 0 {
		s.cache = s.rv - changes
		s.http.CloseClientConnections()
	}
	s.wake()
}

// cached returns the version that the watch cache has.
func (s *Server) cached() uint64 { return cmp.Or(s.cache, s.rv) }

// Requests returns the requests about one resource so far, in the order of arrival; all of
// them if r is empty.
func (s *Server) Requests(r Resource) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(q Request) bool { return r != "" && q.Resource != r })
}

// Watching returns how many watches of a resource are open now.
func (s *Server) Watching(r Resource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watching[r]
}

// listener makes connections that stand still while the gate is locked.
type listener struct {
	net.Listener
	gate *sync.RWMutex
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return conn{c, l.gate}, err
}

type conn struct {
	net.Conn
	gate *sync.RWMutex
}

// wait waits until the gate is open.
func (c conn) wait() {
	c.gate.RLock()
	defer c.gate.RUnlock()
}

func (c conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait() // it may be what was sent since the gate closed
	return n, err
}

func (c conn) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}
