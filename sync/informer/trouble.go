package informer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// remindEvery is the time between two log messages about an error that lasts.
const remindEvery = 5 * time.Minute

// Failure is a kind of objects that can't be read now.
type Failure struct {
	Resource string // plural, as in URLs
	Since    time.Time
	Err      error // the last one
	Remedy   string
}

// trouble is a time in which one kind of objects can't be read.
type trouble struct {
	since        time.Time // zero: there is no trouble
	verb, remedy string    // of the last failure
	err          error
	logged       map[string]bool // classes of errors, since the last reminder
}

// add notes a failure. It reports whether the log should have it: errors of a class that it
// has already are left to the reminder, also if two classes alternate.
func (t *trouble) add(verb, remedy string, err error) bool {
	if t.since.IsZero() {
		t.since, t.logged = time.Now(), map[string]bool{}
	}
	t.verb, t.remedy, t.err = verb, remedy, err
	c := class(err)
	isNew := !t.logged[c]
	t.logged[c] = true
	return isNew
}

// lasts reports whether the trouble has lasted for a time.
func (t *trouble) lasts(d time.Duration) bool { return !t.since.IsZero() && time.Since(t.since) >= d }

// reminded is called after the log has the last failure again.
func (t *trouble) reminded() { t.logged = map[string]bool{class(t.err): true} }

// attrs describe the last failure.
func (t *trouble) attrs(h *health) []slog.Attr {
	consequence := h.of.unseen
	if !h.delivered.Load() {
		consequence = "nothing is programmed until this has been read; rules of an earlier process stay"
	}
	return withRemedy(t.remedy, slog.String("verb", t.verb), slog.Any("err", t.err), slog.String("consequence", consequence))
}

func withRemedy(remedy string, attrs ...slog.Attr) []slog.Attr {
	if remedy == "" {
		return attrs
	}
	return append(attrs, slog.String("remedy", remedy))
}

// Classes of errors.
const (
	unauthorized = "401"
	forbidden    = "403"
	certificates = "certificate"
)

// undecodable is in the status that client-go makes for a watch event that makes no sense.
const undecodable metav1.CauseType = "ClientWatchDecoding"

// class returns the same text for errors with the same cause, as far as the remedy depends on
// it: a status, a certificate, or no usable answer at all. Of the last there are many, which
// follow one another while a server goes down.
func class(err error) string {
	var status apierrors.APIStatus
	var http *statusError
	var certificate *tls.CertificateVerificationError
	switch {
	case apierrors.HasStatusCause(err, undecodable):
		return ""
	case errors.As(err, &status):
		return strconv.Itoa(int(status.Status().Code))
	case errors.As(err, &http):
		return strconv.Itoa(http.code)
	case errors.As(err, &certificate):
		return certificates
	}
	return ""
}

// userOf finds the user in an answer that refuses a request, and of a ServiceAccount the
// namespace and the name.
var userOf = regexp.MustCompile(`User "(system:serviceaccount:([^:"]+):([^:"]+)|[^"]*)"`)

// remedy names the missing right, if a request failed for want of one.
func remedy(r *resource, verb string, err error) string {
	switch class(err) {
	case unauthorized:
		return "the API server does not accept our token or client certificate: it has expired, was revoked, or is another cluster's"
	case forbidden:
	default:
		return ""
	}
	user := "our user"
	if found := userOf.FindStringSubmatch(err.Error()); found != nil {
		if found[1] == "system:anonymous" {
			return "this process sent no token or client certificate: look at its kubeconfig"
		}
		user = fmt.Sprintf("the user %q", found[1])
		if found[2] != "" {
			user = fmt.Sprintf("the ServiceAccount %s/%s", found[2], found[3])
		}
	}
	return fmt.Sprintf("%s lacks the right to %s %s of API group %q: a ClusterRole must grant list and watch", user, verb, r.name, r.group)
}
