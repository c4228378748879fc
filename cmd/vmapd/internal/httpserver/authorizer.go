package httpserver

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmapd/vmapd/sync/logonce"
)

// Reviewer asks the API server. [github.com/vmapd/vmapd/sync/kube/client.Client] is one.
type Reviewer interface {
	ReviewToken(context.Context, authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error)
	ReviewAccess(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

// Authorizer asks the API server for the user of a bearer token, by a TokenReview, and whether
// that user may access the path, by a SubjectAccessReview for a non-resource URL with the
// method in lower case as the verb. A ClusterRole allows it:
//
//	rules:
//	- nonResourceURLs: ["/metrics"]
//	  verbs: ["get"]
//
// It caches a positive answer for 2 min, and a negative one for 10 s. So a token or a permission that
// is revoked counts for 2 min more at most: the two answers are cached separately, and each expires
// by itself.
type Authorizer struct {
	reviewer Reviewer
	log      *slog.Logger
	users    *reviews[*authenticationv1.UserInfo] // nil: the token is not valid
	may      *reviews[bool]

	mu   sync.Mutex
	said logonce.Error // of the API server
}

// NewAuthorizer returns an Authorizer with empty caches. The process needs the permissions of
// the ClusterRole system:auth-delegator. The Authorizer should be the only user of the
// Reviewer's rate limit, so that clients with invalid tokens slow down nothing else.
func NewAuthorizer(r Reviewer, log *slog.Logger) *Authorizer {
	slots := make(chan struct{}, maxReviews)
	return &Authorizer{reviewer: r, log: log, users: newReviews[*authenticationv1.UserInfo](slots), may: newReviews[bool](slots)}
}

// Wrap passes allowed requests to a handler, and all requests for /healthz, as the kubelet has
// no token. Other requests get status 401 without a valid token, 403 without permission, 503 if
// the API server is unavailable, and 500 if vmapd has no permission to ask it.
func (a *Authorizer) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			if status, text := a.check(r); status != http.StatusOK {
				if status == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", "Bearer")
				}
				http.Error(w, text, status)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// check returns StatusOK, or the answer that refuses the request.
func (a *Authorizer) check(r *http.Request) (status int, text string) {
	token, ok := bearerToken(r)
	if !ok {
		return http.StatusUnauthorized, "a bearer token is required"
	}
	ctx := r.Context()
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(token))) // the token itself is not stored
	user, err := a.users.get(ctx, key, func(ctx context.Context) (*authenticationv1.UserInfo, bool, error) {
		return a.authenticate(ctx, token)
	})
	switch {
	case err != nil:
		return a.unable(ctx, "tokenreviews", err)
	case user == nil:
		return http.StatusUnauthorized, "the bearer token is not valid"
	}
	verb, path := strings.ToLower(r.Method), r.URL.Path
	may, err := a.may.get(ctx, key+" "+verb+" "+path, func(ctx context.Context) (bool, bool, error) {
		return a.authorize(ctx, user, verb, path)
	})
	if err != nil {
		return a.unable(ctx, "subjectaccessreviews", err)
	}
	a.note(ctx, nil)
	if !may {
		return http.StatusForbidden, fmt.Sprintf("user %q has no permission to %s %q", user.Username, verb, path)
	}
	return http.StatusOK, ""
}

// bearerToken returns the token of a request (RFC 6750, 2.1).
func bearerToken(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

func (a *Authorizer) authenticate(ctx context.Context, token string) (*authenticationv1.UserInfo, bool, error) {
	got, err := a.reviewer.ReviewToken(ctx, authenticationv1.TokenReviewSpec{Token: token})
	if err != nil {
		return nil, false, err
	}
	if !got.Authenticated {
		a.log.LogAttrs(ctx, slog.LevelDebug, "a bearer token is not valid", slog.String("reason", got.Error))
		return nil, false, nil
	}
	return &got.User, true, nil
}

func (a *Authorizer) authorize(ctx context.Context, user *authenticationv1.UserInfo, verb, path string) (may, yes bool, err error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range user.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	got, err := a.reviewer.ReviewAccess(ctx, authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	})
	if err != nil {
		return false, false, err
	}
	return got.Allowed, got.Allowed, nil
}

// unable notes an error of the API server, and returns the answer to the
// client.
func (a *Authorizer) unable(ctx context.Context, resource string, err error) (status int, text string) {
	if ctx.Err() != nil { // the client left
		return http.StatusServiceUnavailable, "the request was cancelled"
	}
	status, text = http.StatusServiceUnavailable, "the API server cannot review the token now"
	if apierrors.IsForbidden(err) {
		status, text = http.StatusInternalServerError, "this process has no permission to review tokens"
		err = fmt.Errorf("no permission to create %s (see the ClusterRole system:auth-delegator): %w", resource, err)
	}
	a.note(ctx, err)
	return status, text
}

// note logs the begin, a change and the end of an error of the API server.
func (a *Authorizer) note(ctx context.Context, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch differs := a.said.Differs(err); {
	case differs && err != nil:
		a.log.LogAttrs(ctx, slog.LevelError, "cannot review bearer tokens; refusing requests", slog.Any("err", err))
	case differs:
		a.log.LogAttrs(ctx, slog.LevelInfo, "reviewing bearer tokens again")
	}
}
