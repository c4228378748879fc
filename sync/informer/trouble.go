package informer

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
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

// failed logs a failure, unless one with its remedy was logged since reads began to fail.
func (f *follower) failed(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || outdated(err) {
		return // no failure: vmapd stops, or client-go lists again
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	remedy := remedy(err)
	attrs := []slog.Attr{slog.String("verb", verb), slog.Any("err", err)}
	if remedy != "" {
		attrs = append(attrs, slog.String("remedy", remedy))
	}
	if f.optional != "" && !f.complete && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		f.log.LogAttrs(ctx, slog.LevelInfo, "cannot read this resource: "+f.optional, attrs...)
		f.lacking, f.failure = true, Failure{}
		f.delivered()
		return
	}
	if f.failure.Since.IsZero() {
		f.failure.Since, f.logged = time.Now(), map[string]bool{}
	}
	f.failure.Resource, f.failure.Err, f.failure.Remedy = f.name, err, remedy
	if f.logged[remedy] {
		return
	}
	f.logged[remedy] = true
	consequence := f.unseen
	if !f.complete {
		consequence = "nothing is programmed until this has been read; rules of an earlier process stay"
	}
	f.log.LogAttrs(ctx, slog.LevelError, "cannot read from the API server; keeping the last known state and retrying",
		append(attrs, slog.String("consequence", consequence))...)
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

// remedy returns what an administrator can do about an error that retries do not end, or "".
func remedy(err error) string {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return "the kubeconfig must have the certificate authority and a name of the API server"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept our token or client certificate: " +
			"it has expired, was revoked, or is another cluster's"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `"system:anonymous"`):
		return "this process sent no token or client certificate: look at its kubeconfig"
	case apierrors.IsForbidden(err):
		return "a ClusterRole must grant our user list and watch"
	}
	return ""
}
