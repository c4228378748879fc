package main

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// Signs of another proxy on the node, as the metric vmapd_other_proxy has them.
const (
	signIPTables    = "iptables"     // chains came back after they had been removed
	signNFTables    = "nftables"     // a table did
	signIPVS        = "ipvs"         // a device, virtual servers or ipsets did
	signOwner       = "table-owner"  // our table belongs to another process
	signHealthzPort = "healthz-port" // another process listens there
	signMetricsPort = "metrics-port"
)

var allSigns = []string{signIPTables, signNFTables, signIPVS, signOwner, signHealthzPort, signMetricsPort}

const (
	// signMemory is the time for which a sign counts after it was last seen.
	signMemory = 5 * time.Minute
	// signRepeat is the time after which a sign that lasts is told again.
	signRepeat = 5 * time.Minute
	// handOver is the time for which ports and tables may belong to another process without being a
	// sign: an instance of vmapd that replaces another waits for them.
	handOver = 20 * time.Second
)

// rivals are the signs of another proxy that is alive beside this one. Its methods may be called
// by several goroutines.
type rivals struct {
	log   *slog.Logger
	event func(text string)

	mu    sync.Mutex
	signs map[string]*sign
}

// sign is one sign of another proxy.
type sign struct {
	text       string
	seen, told time.Time
}

// seen notes a sign. It is told when it is new, when its text changes, and again while it lasts.
func (r *rivals) seen(kind, text string) {
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
	if s.text == text && now.Sub(s.told) < signRepeat {
		return
	}
	s.text, s.told = text, now
	r.log.LogAttrs(context.Background(), slog.LevelWarn, "another proxy is active on this node", slog.String("sign", kind), slog.String("why", text))
	r.event("another proxy is active on this node: " + text)
}

// gone takes a sign away.
func (r *rivals) gone(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(kind)
}

// drop is gone, for a caller that holds mu.
func (r *rivals) drop(kind string) {
	if r.signs[kind] != nil {
		delete(r.signs, kind)
		r.log.LogAttrs(context.Background(), slog.LevelInfo, "no longer a sign of another proxy", slog.String("sign", kind))
	}
}

// current returns the present signs, with their texts.
func (r *rivals) current() map[string]string {
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

// flags returns whether each sign is there.
func (r *rivals) flags() map[string]bool {
	flags, now := map[string]bool{}, r.current()
	for _, kind := range allSigns {
		_, flags[kind] = now[kind]
	}
	return flags
}
