package events

import (
	"maps"
	"time"

	"golang.org/x/time/rate"

	"github.com/vmapd/vmapd/model"
)

// Limits. Those of an object, of the queue and of the two maps are client-go's.
const (
	objectBurst    = 25
	objectInterval = 5 * time.Minute // between further events
	maxObjects     = 4096
	maxSeries      = 4096
	queueLen       = 1000
	// writeRate is how many events a node writes per second, with bursts of writeBurst.
	writeRate  = 5
	writeBurst = 10
	// sweepInterval is the least time between two searches for entries to forget.
	sweepInterval = time.Minute
)

// limits bound the events about each object: one that fails every second is not worth an
// event every second.
type limits struct {
	byObject map[model.ObjectRef]*rate.Limiter
	swept    time.Time
}

func (l *limits) allow(o model.ObjectRef, now time.Time) bool {
	limit, ok := l.byObject[o]
	if !ok {
		full := func(_ model.ObjectRef, l *rate.Limiter) bool { return l.TokensAt(now) >= objectBurst }
		if !room(l.byObject, maxObjects, &l.swept, now, full) {
			return false
		}
		limit = rate.NewLimiter(rate.Every(objectInterval), objectBurst)
		l.byObject[o] = limit
	}
	return limit.AllowN(now, 1)
}

// room reports whether a map has fewer entries than the maximum. If it is full, the old
// entries are deleted.
func room[K comparable, V any](m map[K]V, maximum int, swept *time.Time, now time.Time, old func(K, V) bool) bool {
	if len(m) >= maximum && now.Sub(*swept) >= sweepInterval {
		*swept = now
		maps.DeleteFunc(m, old)
	}
	return len(m) < maximum
}
