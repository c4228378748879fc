package apitest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault Fault
		want  string // the body
		cut   bool
	}{
		{"none", NoFault, `"name":"a"`, false},
		{"cut short", CutShort, `{`, true},
		{"web page", HTML, "<title>", false},
		{"no body", NoBody, "", false},
		{"empty object", EmptyObject, "{}", false},
		{"garbage", Garbage, "[{{", false},
	} {
		s := start(t, Options{})
		s.Set(service("a", nil))
		s.Fault(Services, tt.fault)
		resp := get(t, s, "/api/v1/services")
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), tt.want) || (err != nil) != tt.cut {
			t.Errorf("%s: status %d, body %s, %v", tt.name, resp.StatusCode, body, err)
		}
		if want := tt.fault == NoFault; bytes.HasSuffix(bytes.TrimSpace(body), []byte("]}")) != want {
			t.Errorf("%s: whole is %v, want %v: %s", tt.name, !want, want, body)
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	s := start(t, Options{})
	s.Refuse(Services, http.StatusTooManyRequests)
	resp := get(t, s, "/api/v1/services")
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("status %d, header %v", resp.StatusCode, resp.Header)
	}
}

func TestRestore(t *testing.T) {
	s := start(t, Options{})
	s.Set(service("a", nil))
	backup := s.Backup()
	last := s.Set(service("b", nil))
	s.Restore(backup)
	if names := list(t, s, "/api/v1/services"); names != "a" {
		t.Errorf("list after the restore: %q", names)
	}
	services := clientset(t, s, runtime.ContentTypeProtobuf).CoreV1().Services("")
	_, err := services.List(t.Context(), metav1.ListOptions{ResourceVersion: last})
	if !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("list of a later version: %v", err)
	}
	// Such a watch is silent until its version is passed.
	w, err := services.Watch(t.Context(), metav1.ListOptions{ResourceVersion: last})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.Set(service("c", nil))
	s.Set(service("d", nil))
	if e := <-w.ResultChan(); e.Object.(*corev1.Service).Name != "d" {
		t.Errorf("first event: %v", e)
	}
	s.Restore(Backup{})
	if names := list(t, s, "/api/v1/services"); names != "" {
		t.Errorf("list after all is lost: %q", names)
	}
}

func TestReplay(t *testing.T) {
	s := start(t, Options{})
	first := s.Set(service("a", nil))
	s.Set(service("a", map[string]string{"x": "y"}))
	w, err := clientset(t, s, runtime.ContentTypeJSON).CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: first})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	s.Replay(Services, first)
	if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object.(*corev1.Service).ResourceVersion != first {
		t.Errorf("replayed: %v", e)
	}
}
