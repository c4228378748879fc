package informer

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Word is the API server's last word: an answer without an error, or an event.
type Word struct {
	At time.Time // zero: there was none
	// Skew is the server's clock minus this node's, as of its last answer of any kind. It is exact to a
	// second and the answer's way. SkewKnown is whether there was one.
	Skew      time.Duration
	SkewKnown bool
}

// LastWord returns the API server's last word. It may be called at any time.
func (s *Source) LastWord() Word {
	s.word.mu.Lock()
	defer s.word.mu.Unlock()
	return s.word.Word
}

// lastWord is where requests and watches note the server's words.
type lastWord struct {
	mu sync.Mutex
	Word
}

type wordKey struct{}

// withWord returns a context in which requests note the server's words.
func withWord(ctx context.Context, w *lastWord) context.Context {
	return context.WithValue(ctx, wordKey{}, w)
}

// answered notes a response.
func (w *lastWord) answered(resp *http.Response) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if resp.StatusCode == http.StatusOK {
		w.At = now
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		const half = 500 * time.Millisecond // of the second that the header leaves out
		w.Skew, w.SkewKnown = date.Add(half).Sub(now.Round(0)), true
	}
}

// noteWord notes an event of a watch.
func noteWord(ctx context.Context) {
	if w, ok := ctx.Value(wordKey{}).(*lastWord); ok {
		w.mu.Lock()
		w.At = time.Now()
		w.mu.Unlock()
	}
}
