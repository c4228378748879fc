package httpserver

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	apiclient "github.com/vmapd/vmapd/sync/kube/client"
)

// apiServer answers TokenReviews and SubjectAccessReviews over TLS: the token of NAME is
// token-NAME, and only the user prometheus may get /metrics.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	refuse  int // status for all
	tokens  []authenticationv1.TokenReviewSpec
	access  []authorizationv1.SubjectAccessReviewSpec
	waiting chan struct{} // if set, requests wait until it is closed
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{
		Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}, // all that handle understands
	}
}

func (s *apiServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// asked returns how many reviews of each kind there were.
func (s *apiServer) asked() [2]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [2]int{len(s.tokens), len(s.access)}
}

func (s *apiServer) handle(w http.ResponseWriter, r *http.Request) {
	var answer any
	s.mu.Lock()
	refuse, waiting := s.refuse, s.waiting
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			panic(err)
		}
		s.tokens = append(s.tokens, review.Spec)
		if name, ok := strings.CutPrefix(review.Spec.Token, "token-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: name, UID: "uid-" + name, Groups: []string{"system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{"pod": {"a", "b"}},
			}}
		} else {
			review.Status.Error = "invalid bearer token"
		}
		answer = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			panic(err)
		}
		s.access = append(s.access, review.Spec)
		a := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "prometheus" && a.Verb == "get" && a.Path == "/metrics"
		answer = review
	}
	s.mu.Unlock()
	if waiting != nil {
		<-waiting
	}
	status := http.StatusCreated
	if refuse != 0 {
		status = refuse
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: int32(refuse), Message: "no",
			Reason: map[int]metav1.StatusReason{
				http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
			}[refuse],
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// guarded starts a metrics port with TLS whose guard asks an API server.
func guarded(t *testing.T, api *apiServer) (url string, client *http.Client, said *logBuffer) {
	t.Helper()
	reviewer, err := apiclient.New(api.config())
	if err != nil {
		t.Fatal(err)
	}
	log, said := newLog()
	certificate, client := testCertificate(t)
	s, _ := start(t, Config{
		Addresses: []string{"127.0.0.1:0"}, TLS: certificate.Config(),
		Handler:    MetricsPort{Metrics: says("figures"), Profiling: true, SetVerbosity: func(int) {}}.Handler(),
		Authorizer: NewAuthorizer(reviewer, log),
	}, Options{})
	return "https://" + serving(t, s, 1), client, said
}

func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	url, client, _ := guarded(t, api)
	for _, tt := range []struct {
		name, method, path, authorization string
		want                              int
		text                              string
		asked                             [2]int // TokenReviews, SubjectAccessReviews so far
	}{
		{"health needs no token", "GET", "/healthz", "", 200, "ok", [2]int{0, 0}},
		{"no token", "GET", "/metrics", "", 401, "a bearer token is required\n", [2]int{0, 0}},
		{"an empty token", "GET", "/metrics", "Bearer ", 401, "a bearer token is required\n", [2]int{0, 0}},
		{"another scheme", "GET", "/metrics", "Basic token-prometheus", 401, "a bearer token is required\n", [2]int{0, 0}},
		{"not valid", "GET", "/metrics", "Bearer nonsense", 401, "the bearer token is not valid\n", [2]int{1, 0}},
		{"not valid again", "GET", "/metrics", "Bearer nonsense", 401, "the bearer token is not valid\n", [2]int{1, 0}},
		{"allowed", "GET", "/metrics", "Bearer token-prometheus", 200, "figures", [2]int{2, 1}},
		{"allowed again", "GET", "/metrics", "bearer  token-prometheus", 200, "figures", [2]int{2, 1}},
		{"another path", "GET", "/debug/pprof/cmdline", "Bearer token-prometheus", 403, "user \"prometheus\" has no permission to get \"/debug/pprof/cmdline\"\n", [2]int{2, 2}},
		{"another method", "PUT", "/metrics", "Bearer token-prometheus", 403, "user \"prometheus\" has no permission to put \"/metrics\"\n", [2]int{2, 3}},
		{"a way round", "GET", "/healthz/../metrics", "Bearer token-eve", 403, "user \"eve\" has no permission to get \"/healthz/../metrics\"\n", [2]int{3, 4}},
		{"somebody else", "GET", "/metrics", "Bearer token-eve", 403, "user \"eve\" has no permission to get \"/metrics\"\n", [2]int{3, 5}},
		{"somebody else again", "GET", "/metrics", "Bearer token-eve", 403, "user \"eve\" has no permission to get \"/metrics\"\n", [2]int{3, 5}},
	} {
		status, body, err := do(t, client, tt.method, url+tt.path, "9", "Authorization", tt.authorization)
		if err != nil || status != tt.want || body != tt.text {
			t.Errorf("%s: want %d %q, got %d %q, %v", tt.name, tt.want, tt.text, status, body, err)
		}
		if got := api.asked(); got != tt.asked {
			t.Errorf("%s: want %v reviews so far, got %v", tt.name, tt.asked, got)
		}
	}
	if diff := cmp.Diff(authenticationv1.TokenReviewSpec{Token: "nonsense"}, api.tokens[0]); diff != "" {
		t.Errorf("TokenReview (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(authorizationv1.SubjectAccessReviewSpec{
		User: "prometheus", UID: "uid-prometheus", Groups: []string{"system:authenticated"},
		Extra:                 map[string]authorizationv1.ExtraValue{"pod": {"a", "b"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}, api.access[0]); diff != "" {
		t.Errorf("SubjectAccessReview (-want +got):\n%s", diff)
	}
}

// Clients are told how to authenticate (RFC 6750, 3).
func TestRefusalsNameTheScheme(t *testing.T) {
	t.Parallel()
	h := NewAuthorizer(nobody{}, discard()).Wrap(says("secret"))
	for _, authorization := range []string{"", "Bearer nonsense"} {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", authorization)
		h.ServeHTTP(w, r)
		if got := w.Header().Get("WWW-Authenticate"); got != "Bearer" || w.Code != http.StatusUnauthorized {
			t.Errorf("%q: got status %d, %q", authorization, w.Code, got)
		}
	}
}

func TestTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	url, client, said := guarded(t, api)
	const header, value = "Authorization", "Bearer token-prometheus"
	ask := func(want int) string {
		t.Helper()
		status, body, err := get(t, client, url+"/metrics", header, value)
		if err != nil || status != want {
			t.Errorf("want status %d, got %d %q, %v", want, status, body, err)
		}
		return body
	}
	api.set(func() { api.refuse = http.StatusForbidden })
	for range 3 {
		if body := ask(http.StatusInternalServerError); body != "this process has no permission to review tokens\n" {
			t.Errorf("got %q", body)
		}
	}
	if said.count("system:auth-delegator") != 1 || said.count("tokenreviews") != 1 {
		t.Errorf("want one line with a hint, got:\n%s", said)
	}
	api.set(func() { api.refuse = http.StatusServiceUnavailable })
	for range 3 {
		if body := ask(http.StatusServiceUnavailable); body != "the API server cannot review the token now\n" {
			t.Errorf("got %q", body)
		}
	}
	if status, _, err := get(t, client, url+"/healthz"); err != nil || status != http.StatusOK {
		t.Errorf("/healthz: got status %d, %v", status, err)
	}
	api.set(func() { api.refuse = 0 })
	ask(http.StatusOK)
	if got := said.count("cannot review bearer tokens"); got != 2 || said.count("reviewing bearer tokens again") != 1 {
		t.Errorf("want two complaints, then that it works again, got:\n%s", said)
	}
	// What is remembered counts without it.
	api.Close()
	ask(http.StatusOK)
	if status, _, err := get(t, client, url+"/metrics", header, "Bearer token-other"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("nobody listens: got status %d, %v", status, err)
	}
}

// However many ask at once with one token, the API server is asked once.
func TestOneReviewForManyRequests(t *testing.T) {
	t.Parallel()
	const many = 50
	api := newAPIServer(t)
	url, client, _ := guarded(t, api)
	release := make(chan struct{})
	api.set(func() { api.waiting = release })
	var wait sync.WaitGroup
	var done atomic.Int64
	for range many {
		wait.Go(func() {
			status, _, err := get(t, client, url+"/metrics", "Authorization", "Bearer token-prometheus")
			if err != nil || status != http.StatusOK {
				t.Errorf("got status %d, %v", status, err)
			}
			done.Add(1)
		})
	}
	eventually(t, "the API server is asked", func() bool { return api.asked() != [2]int{} })
	if done.Load() > 0 {
		t.Error("somebody was answered before")
	}
	close(release)
	wait.Wait()
	if got := api.asked(); got != [2]int{1, 1} {
		t.Errorf("want one review of each kind, got %v", got)
	}
}

// question is one that a test asks in place of the API server's.
type question struct {
	asked  int
	answer bool
	err    error
	takes  time.Duration
}

func (q *question) ask(ctx context.Context) (string, bool, error) {
	q.asked++
	select {
	case <-time.After(q.takes):
		return fmt.Sprint("answer ", q.asked), q.answer, q.err
	case <-ctx.Done():
		return "", false, ctx.Err()
	}
}

// The pages say how long a revoked right counts.
func TestPagesSayHowLongARevokedRightCounts(t *testing.T) {
	if rememberYes != 2*time.Minute {
		t.Fatalf("answers are remembered for %v: change the pages", rememberYes)
	}
	for _, page := range []string{"cmd/vmapd/deploy/OPERATION.md", "cmd/vmapd/deploy/SECURITY.md", "cmd/vmapd/configuration.md"} {
		text, err := os.ReadFile(filepath.Join("../../../..", page))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(string(text)), " ")
		if i := strings.Index(words, "a right that is revoked"); i < 0 || !strings.Contains(words[i:min(len(words), i+100)], "two minutes more at most") {
			t.Errorf("%s does not say it", page)
		}
	}
}

func TestHowLongAnswersCount(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    question
		want []int // how often it was asked after 0, 9, 11, 119 and 121 s
	}{
		{"yes", question{answer: true}, []int{1, 1, 1, 1, 2}},
		{"no", question{answer: false}, []int{1, 1, 2, 3, 3}},
		{"an error", question{err: context.DeadlineExceeded}, []int{1, 2, 3, 4, 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReviews[string](make(chan struct{}, 1))
				begin := time.Now()
				var got []int
				for _, at := range []time.Duration{0, 9, 11, 119, 121} {
					time.Sleep(time.Until(begin.Add(at * time.Second)))
					answer, err := r.get(t.Context(), "key", tt.q.ask)
					if want := fmt.Sprint("answer ", tt.q.asked); answer != want || (err != nil) != (tt.q.err != nil) {
						t.Errorf("after %d s: want %q, got %q, %v", at, want, answer, err)
					}
					got = append(got, tt.q.asked)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestGuessesDoNotPushOutTheOthers(t *testing.T) {
	r := newReviews[string](make(chan struct{}, 1))
	good, bad := question{answer: true}, question{}
	get := func(key string, q *question) {
		t.Helper()
		if _, err := r.get(t.Context(), key, q.ask); err != nil {
			t.Fatal(err)
		}
	}
	get("good", &good)
	for i := range 2 * maxRemembered {
		get(fmt.Sprint("guess ", i), &bad)
	}
	get("good", &good)
	if good.asked != 1 || bad.asked != 2*maxRemembered {
		t.Errorf("asked %d and %d times", good.asked, bad.asked)
	}
	if n := len(r.no.Keys()); n > maxRemembered || len(r.asked) > 0 {
		t.Errorf("%d answers are kept, %d questions are open", n, len(r.asked))
	}
}

func TestReviewsThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews[string](make(chan struct{}, 1))
		slow := question{answer: true, takes: 4 * time.Second}
		begin := time.Now()
		leaving, leave := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := r.get(leaving, "key", slow.ask); err == nil {
				t.Error("who left got an answer")
			}
		})
		synctest.Wait()
		// Those who wait ask again if the one who asked for them leaves.
		for range 3 {
			wait.Go(func() {
				if answer, err := r.get(t.Context(), "key", slow.ask); answer != "answer 2" || err != nil {
					t.Errorf("got %q, %v", answer, err)
				}
			})
		}
		time.Sleep(time.Second)
		leave()
		wait.Wait()
		if slow.asked != 2 || time.Since(begin) != 5*time.Second {
			t.Errorf("asked %d times, took %v", slow.asked, time.Since(begin))
		}

		// Waiting for a turn counts: one is answered after 4 s, the other, who may ask only
		// then, is not within the limit.
		begin = time.Now()
		var failed atomic.Int64
		for i := range 2 {
			wait.Go(func() {
				if _, err := r.get(t.Context(), fmt.Sprint("another key ", i), slow.ask); err != nil {
					failed.Add(1)
				}
			})
		}
		wait.Wait()
		if failed.Load() != 1 || time.Since(begin) != reviewTimeout {
			t.Errorf("%d were not answered, took %v", failed.Load(), time.Since(begin))
		}
	})
}
