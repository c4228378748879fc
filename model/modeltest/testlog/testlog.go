// Package testlog keeps what programs and tests log.
package testlog

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Log keeps what is written, and may be read meanwhile.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	found int // the end of what Find has found
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Find reports whether there is a text behind the one that an earlier call has found.
func (l *Log) Find(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := bytes.Index(l.text.Bytes()[l.found:], []byte(text))
	if at < 0 {
		return false
	}
	l.found += at + len(text)
	return true
}

// Count returns how many lines contain all the texts, in which quotes are as they are in messages.
func (l *Log) Count(texts ...string) (n int) {
	for line := range strings.Lines(strings.ReplaceAll(l.String(), `\"`, `"`)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}
