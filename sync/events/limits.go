package events

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/vmapd/vmapd/model"
)

// Limits. Those of one object, of the queue and of what is remembered are client-go's.
const (
	objectBurst    = 25
	objectInterval = 5 * time.Minute // until there may be one more
	maxObjects     = 4096
	maxSeries      = 4096
	queueLen       = 1000
	// writeRate is how many events a node writes per second, but writeBurst in a moment.
	writeRate  = 5
	writeBurst = 10
	// sweepInterval is how often, at most, what is not needed any more is looked for.
	sweepInterval = time.Minute
)

// limits say how many events there may be about one object: something may be wrong with it
// every second, and worth one event.
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

// room forgets objects of which there was nothing for a while, if there are too many.
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
