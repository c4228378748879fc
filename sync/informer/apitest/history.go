package apitest

import (
	"maps"
	"strconv"
)

// Gone says how a server reports that a resource version has expired. Real ones do
// either.
type Gone int

// The ways to report an expired resource version.
const (
	GoneStatus Gone = iota // the watch is refused with HTTP status 410
	GoneEvent              // the watch is accepted, and its first event is an error
)

// Expire makes all resource versions of now too old to watch from, as when etcd is compacted. Watches that are up to
// date go on.
func (s *Server) Expire(how Gone) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	for _, st := range s.stores {
		st.expire(s.rv, how)
	}
}

// Replay sends to the watches of now once more what happened at a resource version that
// [Server.Set] returned: twice the same, or something old after something newer. No
// server should. Without such a version, it does nothing.
func (s *Server) Replay(r Resource, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	for _, e := range st.log {
		if e.now != nil && strconv.FormatUint(e.now.rv, 10) == version {
			st.append(event{kind: replay, rv: s.rv, now: e.now})
			return
		}
	}
}

// Backup is what a server had at some time.
type Backup struct {
	rv      uint64
	objects map[Resource]map[string]*entry
}

// Backup copies all that the server has.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := Backup{rv: s.rv, objects: make(map[Resource]map[string]*entry)}
	for r, st := range s.stores {
		b.objects[r] = maps.Clone(st.objects)
	}
	return b
}

// Restore puts back what there was, and the resource version too: the versions since
// then are of a future that will be another one. All connections end, as the server was
// restarted. The zero Backup is an etcd that lost everything.
//
// As real servers do, this one lets clients watch from a version of the future, and
// sends nothing before it comes.
func (s *Server) Restore(b Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv = max(b.rv, 1)
	for r, st := range s.stores {
		st.restore(b.objects[r], s.rv)
	}
	s.gate.disconnect()
	close(s.cut)
	s.cut = make(chan struct{})
}
