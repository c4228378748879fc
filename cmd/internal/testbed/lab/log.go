package lab

import (
	"bytes"
	"sync"
)

// Log keeps what programs write, and may be read meanwhile.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	found int // the end of what find has found
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

// find reports whether there is a text behind the one that an earlier call has found.
func (l *Log) find(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := bytes.Index(l.text.Bytes()[l.found:], []byte(text))
	if at < 0 {
		return false
	}
	l.found += at + len(text)
	return true
}
