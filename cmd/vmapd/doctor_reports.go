package main

import (
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
)

const (
	// examinedEvery is the least time between two examinations for metrics and pages: all
	// chains of nftables are listed for each.
	examinedEvery = 30 * time.Second
	// pageWait is how long a page waits for an examination.
	pageWait = 2 * time.Second
)

// reports keeps the report of the last examination of the node, and begins another one when somebody asks for
// it and it is old.
type reports struct {
	examines func() doctor.Report

	mu      sync.Mutex
	last    doctor.Report
	at      time.Time     // of last; zero: there was none
	running chan struct{} // closed at the end of the examination that runs; nil: none does
}

// Lines returns the lines of the last examination at once, and begins another one if that is old. At
// first there are none.
func (r *reports) Lines() []doctor.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	return r.last.Lines
}

// Fresh returns a report that is not old: it waits for an examination for a little while. If that takes
// longer, the report is the last one, whose time tells its age.
func (r *reports) Fresh() doctor.Report {
	r.mu.Lock()
	running := r.begin()
	r.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-time.After(pageWait):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// begin begins an examination if the last one is old. It returns a channel that is closed when the one
// that runs ends, nil if none does. The caller holds mu.
func (r *reports) begin() chan struct{} {
	if r.running == nil && (r.at.IsZero() || time.Since(r.at) > examinedEvery) {
		r.running = make(chan struct{})
		go r.run()
	}
	return r.running
}

func (r *reports) run() {
	report := r.examines()
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.running)
	r.last, r.at, r.running = report, time.Now(), nil
}
