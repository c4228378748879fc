package leftovers

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Signs of another proxy on the node, as the metric vmapd_other_proxy has them.
const (
	SignIPTables    = "iptables"     // chains came back after they had been removed
	SignNFTables    = "nftables"     // a table did
	SignIPVS        = "ipvs"         // a device, virtual servers or ipsets did
	SignOwner       = "table-owner"  // our table belongs to another process
	SignHealthzPort = "healthz-port" // another process listens there
	SignMetricsPort = "metrics-port"
)

var allSigns = []string{SignIPTables, SignNFTables, SignIPVS, SignOwner, SignHealthzPort, SignMetricsPort}

const (
	// signMemory is the time for which a sign stays after it was last seen.
	signMemory = 5 * time.Minute
	// signRepeat is the time after which a sign that lasts is reported again.
	signRepeat = 5 * time.Minute
	// HandOver is the time for which ports and tables may belong to another process without being a
	// sign: an instance of vmapd that replaces another waits for them.
	HandOver = 20 * time.Second
)

// Signs are the signs of another proxy that is alive beside this one. Its methods may be called by several goroutines.
type Signs struct {
	Log   *slog.Logger
	Event func(text string)

	mu    sync.Mutex
	signs map[string]*sign
}

// sign is one sign of another proxy.
type sign struct {
	text         string
	seen, logged time.Time
}

// Seen notes a sign. It is reported when it is new, when its text changes, and again while it lasts.
func (r *Signs) Seen(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	s := r.signs[kind]
	if s == nil {
		s = &sign{}
		if r.signs == nil {
			r.signs = map[string]*sign{}
		}
		r.signs[kind] = s
	}
	s.seen = now
	if s.text == text && now.Sub(s.logged) < signRepeat {
		return
	}
	s.text, s.logged = text, now
	r.Log.Warn("another proxy is active on this node", slog.String("sign", kind), slog.String("why", text))
	r.Event("another proxy is active on this node: " + text)
}

// Gone takes a sign away.
func (r *Signs) Gone(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(kind)
}

// drop is Gone, for a caller that holds mu.
func (r *Signs) drop(kind string) {
	if r.signs[kind] != nil {
		delete(r.signs, kind)
		r.Log.Info("no other proxy is detected any more", slog.String("sign", kind))
	}
}

// Current returns the present signs, with their texts.
func (r *Signs) Current() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[string]string{}
	for kind, s := range maps.Clone(r.signs) {
		if time.Since(s.seen) > signMemory {
			r.drop(kind)
			continue
		}
		texts[kind] = s.text
	}
	return texts
}

// Flags returns whether each sign is there.
func (r *Signs) Flags() map[string]bool {
	flags, now := map[string]bool{}, r.Current()
	for _, kind := range allSigns {
		_, flags[kind] = now[kind]
	}
	return flags
}
