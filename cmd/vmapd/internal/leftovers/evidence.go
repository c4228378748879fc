package leftovers

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Evidence of another proxy on the node, as the metric vmapd_other_proxy has them.
const (
	EvidenceIPTables    = "iptables"     // chains came back after they had been removed
	EvidenceNFTables    = "nftables"     // a table did
	EvidenceIPVS        = "ipvs"         // a device, virtual servers or ipsets did
	EvidenceOwner       = "table-owner"  // our table belongs to another process
	EvidenceHealthzPort = "healthz-port" // another process listens there
	EvidenceMetricsPort = "metrics-port"
)

var allEvidence = []string{
	EvidenceIPTables, EvidenceNFTables, EvidenceIPVS, EvidenceOwner, EvidenceHealthzPort, EvidenceMetricsPort,
}

const (
	// evidenceMemory is the time for which evidence stays after it was last seen.
	evidenceMemory = 5 * time.Minute
	// evidenceRepeat is the time after which evidence that lasts is reported again.
	evidenceRepeat = 5 * time.Minute
	// HandOver is the time for which ports and tables may belong to another process without being
	// evidence: an instance of vmapd that replaces another waits for them.
	HandOver = 20 * time.Second
)

// Evidence is what shows that another proxy is alive beside this one. Its methods may be called by several goroutines.
type Evidence struct {
	Log   *slog.Logger
	Event func(text string)

	mu       sync.Mutex
	evidence map[string]*observation
}

// observation is one piece of evidence of another proxy.
type observation struct {
	text         string
	seen, logged time.Time
}

// Seen notes evidence. It is reported when it is new, when its text changes, and again while it lasts.
func (r *Evidence) Seen(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	s := r.evidence[kind]
	if s == nil {
		s = &observation{}
		if r.evidence == nil {
			r.evidence = map[string]*observation{}
		}
		r.evidence[kind] = s
	}
	s.seen = now
	if s.text == text && now.Sub(s.logged) < evidenceRepeat {
		return
	}
	s.text, s.logged = text, now
	r.Log.Warn("another proxy is active on this node", slog.String("evidence", kind), slog.String("why", text))
	r.Event("another proxy is active on this node: " + text)
}

// Gone takes evidence away.
func (r *Evidence) Gone(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(kind)
}

// drop is Gone, for a caller that holds mu.
func (r *Evidence) drop(kind string) {
	if r.evidence[kind] != nil {
		delete(r.evidence, kind)
		r.Log.Info("no other proxy is detected any more", slog.String("evidence", kind))
	}
}

// Current returns the present evidence, with its texts.
func (r *Evidence) Current() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[string]string{}
	for kind, s := range maps.Clone(r.evidence) {
		if time.Since(s.seen) > evidenceMemory {
			r.drop(kind)
			continue
		}
		texts[kind] = s.text
	}
	return texts
}

// Flags returns whether evidence of each kind is there.
func (r *Evidence) Flags() map[string]bool {
	flags, now := map[string]bool{}, r.Current()
	for _, kind := range allEvidence {
		_, flags[kind] = now[kind]
	}
	return flags
}
