package informer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Failure is a kind of objects that can't be read now.
type Failure struct {
	Resource string // plural, as in URLs
	Since    time.Time
	Err      error // the last one
	Remedy   string
}

// failed logs a failure, unless one of its class was logged since reads began to fail.
func (f *follower) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || outdated(err) {
		return // no failure: vmapd stops, or client-go lists again
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	remedy := remedy(f.resource, verb, err)
	if f.optional != "" && !f.complete && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		f.log.LogAttrs(ctx, slog.LevelInfo, "cannot read this resource: "+f.optional,
			withRemedy(remedy, slog.Any("err", err))...)
		f.lacking, f.failure = true, Failure{}
		f.delivered()
		return
	}
	if f.failure.Since.IsZero() {
		f.failure.Since, f.logged = time.Now(), map[string]bool{}
	}
	f.failure.Resource, f.failure.Err, f.failure.Remedy = f.name, err, remedy
	if f.logged[class(err)] {
		return
	}
	f.logged[class(err)] = true
	consequence := f.unseen
	if !f.complete {
		consequence = "nothing is programmed until this has been read; rules of an earlier process stay"
	}
	attrs := withRemedy(remedy, slog.String("verb", verb), slog.Any("err", err), slog.String("consequence", consequence))
	f.log.LogAttrs(ctx, slog.LevelError,
		"cannot read from the API server; keeping the last known state and retrying", attrs...)
}

// works is called when a watch works.
func (f *follower) works() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = time.Now()
	if since := f.failure.Since; !since.IsZero() {
		f.failure = Failure{}
		after := time.Since(since).Round(time.Millisecond)
		f.log.Info("reading from the API server again", slog.Duration("after", after))
	}
}

// outdated reports whether the server does not have a version of ours: any more, or not yet.
func outdated(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
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

// class returns the same text for errors with the same cause, as far as the remedy depends on it: a status below 500, a
// certificate, or no usable answer at all.
func class(err error) string {
	var status apierrors.APIStatus
	var certificate *tls.CertificateVerificationError
	switch {
	case apierrors.HasStatusCause(err, undecodable):
		return ""
	case errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError:
		return strconv.Itoa(int(status.Status().Code))
	case errors.As(err, &certificate):
		return certificates
	}
	return ""
}

// userOf finds the user in an answer that refuses a request, and of a ServiceAccount the namespace and the name.
var userOf = regexp.MustCompile(`User "(system:serviceaccount:([^:"]+):([^:"]+)|[^"]*)"`)

// remedy names the missing right, if a request failed because it is missing.
func remedy(r *resource, verb string, err error) string {
	switch class(err) {
	case unauthorized:
		return "the API server does not accept our token or client certificate: " +
			"it has expired, was revoked, or is another cluster's"
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
	return fmt.Sprintf("%s lacks the right to %s %s of API group %q: a ClusterRole must grant list and watch",
		user, verb, r.name, r.group)
}
