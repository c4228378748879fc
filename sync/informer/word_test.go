package informer

import (
	"testing"
	"time"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// Answers and events are words of the API server, and its Date header tells the skew of the clocks.
func TestTheLastWord(t *testing.T) {
	t.Parallel()
	s := standardServer(t, apitest.Options{})
	w := followWhole(t, s)
	first := w.source.LastWord()
	if first.At.IsZero() || !first.SkewKnown || first.Skew.Abs() > 5*time.Second {
		t.Fatalf("after the lists: %+v", first)
	}
	s.Set(service("api", "172.30.0.42"))
	w.want("ns1/api:http at 172.30.0.42:80/tcp:", whole[0], whole[1], whole[2])
	last := w.source.LastWord()
	if !last.At.After(first.At) {
		t.Errorf("an event is no word: %v, after %v", last.At, first.At)
	}
	if err := s.Outage(apitest.Unavailable); err != nil {
		t.Fatal(err)
	}
	w.until("the server is away", func() bool { return len(w.source.Failing()) > 0 })
	if f := w.source.Failing()[0]; f.Since.IsZero() || f.Err == nil {
		t.Errorf("%+v", f)
	}
}
