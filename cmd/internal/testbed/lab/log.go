package lab

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"
)

// Log keeps what programs write, and may be read meanwhile.
type Log struct {
	mu    sync.Mutex
	text  bytes.Buffer
	found int // the end of what Await has found
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

// Await waits until there is a text behind the one that an earlier call has found.
func (l *Log) Await(ctx context.Context, text string) error {
	const pause = 5 * time.Millisecond
	for {
		l.mu.Lock()
		at := bytes.Index(l.text.Bytes()[l.found:], []byte(text))
		if at >= 0 {
			l.found += at + len(text)
		}
		l.mu.Unlock()
		if at >= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %q was logged: %w:\n%s", text, context.Cause(ctx), l)
		case <-time.After(pause):
		}
	}
}
