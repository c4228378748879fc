package events

import (
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
		if !l.room(now) {
			return false
		}
		limit = rate.NewLimiter(rate.Every(objectInterval), objectBurst)
		l.byObject[o] = limit
	}
	return limit.AllowN(now, 1)
}

// room forgets objects without recent events if there are too many.
func (l *limits) room(now time.Time) bool {
	if len(l.byObject) < maxObjects {
		return true
	}
	if now.Sub(l.swept) >= sweepInterval {
		l.swept = now
		for o, limit := range l.byObject {
			if limit.TokensAt(now) >= objectBurst {
				delete(l.byObject, o)
			}
		}
	}
	return len(l.byObject) < maxObjects
}
