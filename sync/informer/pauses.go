package informer

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Pauses before everything is listed again after an error. A pause of a Backoff is up to twice as long
// as the Cap says, by chance: nodes that lost the server together do not return together.
var (
	// soon: what vmapd can't read may matter, so at most five seconds pass once the server is back.
	// The requests of the meantime cost little, because they are refused or answered by something
	// else: with 5,000 nodes and four kinds of objects, some 5,000 a second.
	soon = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 2500 * time.Millisecond, Steps: 38}
	// later, as client-go's reflectors do it, is for a server that says that it has too much to do. A
	// response's Retry-After counts besides: client-go waits that long before it returns the error.
	later = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: 38}
)

// afterSuccess is how long a try must last for the pauses to begin with short ones again.
const afterSuccess = 2 * time.Minute

// pauses are those between the tries of one kind of objects.
type pauses struct{ soon, later wait.Backoff }

func newPauses() *pauses { return &pauses{soon, later} }

// next returns the pause after a try that lasted some time and failed with err, which may be nil.
func (p *pauses) next(err error, lasted time.Duration) time.Duration {
	if lasted >= afterSuccess {
		*p = *newPauses()
	}
	if overloaded(err) {
		return p.later.Step()
	}
	return p.soon.Step()
}

// overloaded reports whether an API server answered that it has too much to do, or did not do
// something in time. A load balancer without a server answers with 502 or 503.
func overloaded(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusGatewayTimeout:
		return true
	}
	return false
}
