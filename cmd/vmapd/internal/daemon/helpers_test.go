package daemon

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.RunTests(m.Run)) }

// silence is how long a test waits for an answer.
const silence = 2 * time.Second

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newLab(t *testing.T) *lab.World {
	t.Helper()
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	w, err := lab.New(t.Context(), lab.Config{Pods: 3, Ports: []uint16{8080}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}
