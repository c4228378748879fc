package testaid

import (
	"bytes"
	"strings"
	"sync"
)

// Log is a buffer for a log of several goroutines.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
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

// Count returns how many lines contain all the texts, in which quotes are as they are in messages.
func (l *Log) Count(texts ...string) (n int) {
	for line := range strings.Lines(strings.ReplaceAll(l.String(), `\"`, `"`)) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			n++
		}
	}
	return n
}
