package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestAPortThatIsTaken(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 2)
	other := take(t, fmt.Sprintf(":%d", p[0]))
	w.set(service("ns1/a", p[0]), service("ns1/b", p[1]))
	w.mustSay("127.0.0.1", p[1], "503 b")
	w.mustFail(fmt.Sprintf("ns1/a: listen tcp4 0.0.0.0:%d: bind: address already in use", p[0]))
	w.set(local("ns1/b", "10.0.0.2")) // tries again, without a new message
	w.mustSay("127.0.0.1", p[1], "200 b")
	w.mustFail()
	hangUp(other)
	w.mustSay("127.0.0.1", p[0], "503 a") // without a round
	w.mustFail()
	for _, want := range []string{
		`level=WARN msg="cannot listen on health-check port; retrying" service=ns1/a`,
		`level=INFO msg="listening on health-check port again" service=ns1/a`,
	} { // the line may come after the first answer
		if !w.eventually(want, func() bool { return strings.Count(w.log.String(), want) == 1 }) {
			t.Errorf("not once in the log: %s\n%s", want, w.log.String())
		}
	}
}

func TestTwoServicesWithOnePort(t *testing.T) {
	w := newWorld(t)
	p := freePorts(t, 2)
	taken := func(loser string) string {
		return fmt.Sprintf("%s: listen tcp4 0.0.0.0:%d: bind: address already in use", loser, p[0])
	}
	w.set(service("ns1/b", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.set(service("ns1/a", p[0])) // the one that has it keeps it
	w.mustFail(taken("ns1/a"))
	w.set(service("ns1/d", p[0]), service("ns1/c", p[0]))
	w.mustFail(taken("ns1/c"), taken("ns1/d"))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.remove(service("ns1/b", p[0])) // the first by name gets it
	w.mustSay("127.0.0.1", p[0], "503 a")
	w.set(service("ns1/a", p[1]))
	w.mustSay("127.0.0.1", p[0], "503 c")
	w.mustSay("127.0.0.1", p[1], "503 a")
	w.remove(service("ns1/d", p[0])) // it never had the port
	w.set(service("ns1/e", p[0]), local("ns1/c", "10.0.0.2"))
	w.mustFail(taken("ns1/e"))
	w.mustSay("127.0.0.1", p[0], "200 c")
	w.remove(service("ns1/e", p[0])) // … and does not wait for it any more
	w.remove(service("ns1/c", p[0]))
	w.mustSay("127.0.0.1", p[0], "refused")
	w.set(service("ns1/f", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 f")
	w.mustFail()
}

// attempts notes when it was tried to listen. Until free, each fails.
type attempts struct {
	start time.Time

	mu   sync.Mutex
	at   []time.Duration
	free bool
}

func (a *attempts) listen(context.Context, netip.AddrPort) (net.Listener, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, time.Since(a.start))
	if a.free {
		return stuck{make(chan struct{})}, nil
	}
	return nil, errors.New("taken")
}

func (a *attempts) setFree(free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free = free
}

// after returns the attempts of so far, once d has passed.
func (a *attempts) after(d time.Duration) []time.Duration {
	time.Sleep(d)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.at)
}

func TestAPortThatIsTakenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		s := NewServices(ServicesOptions{
			Healthy: func() bool { return true },
			Failed:  func(model.NamespacedName, uint16, error) { failures++ },
			Log:     slog.New(slog.DiscardHandler), Serve: (*http.Server).Serve,
		})
		a := &attempts{start: time.Now()}
		s.listen = a.listen
		stop := testaid.Run(t, s.Run)
		w := &world{T: t, Services: s, builder: modeltest.Builder(modeltest.Config())}
		w.set(service("ns1/web", 30000))
		const ms = time.Millisecond
		want := []time.Duration{0, 500 * ms, 1000 * ms, 1500 * ms}
		if diff := cmp.Diff(want, a.after(1700*ms)); diff != "" {
			t.Errorf("tried at (-want +got):\n%s", diff)
		}
		w.round() // is an occasion, too
		want = append(want, 1700*ms)
		if diff := cmp.Diff(want, a.after(0)); diff != "" {
			t.Errorf("with a round, tried at (-want +got):\n%s", diff)
		}
		a.setFree(true)
		want = append(want, 2200*ms)
		if diff := cmp.Diff(want, a.after(time.Hour)); diff != "" {
			t.Errorf("when it works, tried at (-want +got):\n%s", diff)
		}
		a.setFree(false)
		w.set(service("ns1/other", 30001))
		a.after(0)
		stop()
		if failures != 2 {
			t.Errorf("told of %d failures, want 2: one for each Service, as they stay the same", failures)
		}
	})
}
