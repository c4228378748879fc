package informer

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

func TestPauses(t *testing.T) {
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "list", schema.GroupResource{Resource: "services"}, "", "", 0, false)
	}
	for _, tt := range []struct {
		name  string
		err   error
		least time.Duration // once there were some
		most  time.Duration
	}{
		{"no error", nil, 2500 * time.Millisecond, 5 * time.Second},
		{"nonsense", errNoList, 2500 * time.Millisecond, 5 * time.Second},
		{"refused", errors.New("connection refused"), 2500 * time.Millisecond, 5 * time.Second},
		{"403", status(http.StatusForbidden), 2500 * time.Millisecond, 5 * time.Second},
		{"502, of a load balancer", status(http.StatusBadGateway), 2500 * time.Millisecond, 5 * time.Second},
		{"503", status(http.StatusServiceUnavailable), 2500 * time.Millisecond, 5 * time.Second},
		{"429", status(http.StatusTooManyRequests), 30 * time.Second, time.Minute},
		{"500", status(http.StatusInternalServerError), 30 * time.Second, time.Minute},
		{"504", status(http.StatusGatewayTimeout), 30 * time.Second, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPauses()
			for try := range 200 {
				pause := p.next(tt.err, 0)
				if try == 0 && pause > 2*time.Second {
					t.Errorf("the first pause is %v", pause)
				}
				if pause > tt.most || try > 10 && pause < tt.least {
					t.Errorf("pause %d is %v, want %v to %v", try, pause, tt.least, tt.most)
				}
			}
			if pause := p.next(tt.err, time.Hour); pause > 2*time.Second {
				t.Errorf("after an hour without an error: %v", pause)
			}
		})
	}
}

// An answer that makes no sense is asked for again after five seconds at most, however often it
// was.
func TestNonsenseIsTriedAgainSoon(t *testing.T) {
	t.Parallel()
	const tries, within = 9, 5*time.Second + 3*time.Second // and some time for a busy machine
	for f, name := range map[apitest.Fault]string{apitest.HTML: "a web page", apitest.NoBody: "no body"} {
		forEachServer(t, name, func(t *testing.T, s *apitest.Server) {
			w := followWhole(t, s)
			spoil(s, f)
			s.Expire(apitest.GoneStatus)
			s.DropWatches()
			w.fails(everything...)
			first := len(s.Requests(apitest.Services)) - 1
			w.until(fmt.Sprintf("%d more requests", tries), func() bool {
				all := s.Requests(apitest.Services)
				if n := len(all) - 1; n > first && time.Since(all[n].Time) > within {
					t.Fatalf("%v passed without a request:\n%s", within, w.requests())
				}
				return len(all) > first+2*tries
			})
		})
	}
}
