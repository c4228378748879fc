package leftovers

import (
	"log/slog"
	"sync"
	"time"
)

// Evidence of another proxy on the node, as the metric vmapd_other_proxy has them.
const (
	EvidenceIPTables    = "iptables"     // chains came back after they had been removed
	EvidenceNFTables    = "nftables"     // a table did
	EvidenceIPVS        = "ipvs"         // a device, virtual servers or ipsets did
	EvidenceOwner       = "table-owner"  // our table belongs to another process
	EvidenceMetricsPort = "metrics-port" // another proxy answers there
)

var allEvidence = []string{
	EvidenceIPTables, EvidenceNFTables, EvidenceIPVS, EvidenceOwner, EvidenceMetricsPort,
}

const (
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
	evidence map[string]observation
}

// observation is one piece of evidence of another proxy.
type observation struct {
	text   string
	logged time.Time
}

// Seen notes evidence. It is reported when it is new, when its text changes, and again while it lasts.
func (r *Evidence) Seen(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.evidence[kind]; o.text == text && time.Since(o.logged) < evidenceRepeat {
		return
	}
	if r.evidence == nil {
		r.evidence = map[string]observation{}
	}
	r.evidence[kind] = observation{text, time.Now()}
	r.Log.Warn("another proxy is active on this node", slog.String("evidence", kind), slog.String("why", text))
	r.Event("another proxy is active on this node: " + text)
}

// Gone takes evidence away.
func (r *Evidence) Gone(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, is := r.evidence[kind]; is {
		delete(r.evidence, kind)
		r.Log.Info("no other proxy is detected any more", slog.String("evidence", kind))
	}
}

// Current returns the present evidence, with its texts.
func (r *Evidence) Current() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[string]string{}
	for kind, o := range r.evidence {
		texts[kind] = o.text
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
