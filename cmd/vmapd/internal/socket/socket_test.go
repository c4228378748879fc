package socket

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
)

// start runs a server, and returns a function that ends it.
func start(t *testing.T, path string, routes map[string]Route) (log *testlog.Log, stop func()) {
	t.Helper()
	log = &testlog.Log{}
	s := NewServer(path, routes, slog.New(slog.NewTextHandler(log, nil)))
	return log, testaid.Run(t, func(ctx context.Context) { _ = s.Run(ctx) })
}

// A panic is an error in the log, the client gets no answer, and the next one is answered.
func TestAPanicIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	routes := greet("")
	routes["/v1/panic"] = func(context.Context, url.Values) (any, error) { panic([]string{"out of", "order"}) }
	log, _ := start(t, path, routes)
	c := Client{Path: path}
	var out greeting
	testaid.WaitUntil(t, "an answer", func() bool { return c.Get(t.Context(), "/v1/greeting", nil, &out) == nil })
	if err := c.Get(t.Context(), "/v1/panic", nil, &out); err == nil {
		t.Error("no error")
	}
	for _, want := range []string{"level=ERROR", "panic serving", "[out of order]", "socket_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
	if err := c.Get(t.Context(), "/v1/greeting", nil, &out); err != nil {
		t.Error(err)
	}
}

type greeting struct {
	From string `json:"from"`
}

func greet(from string) map[string]Route {
	return map[string]Route{"/v1/greeting": func(_ context.Context, query url.Values) (any, error) {
		switch query.Get("name") {
		case "nobody":
			return nil, NotFound("there is no nobody")
		case "broken":
			return nil, errors.New("read the greeting: no")
		}
		return greeting{from + query.Get("name")}, nil
	}}
}

// asks returns the answer to a request, or the text of the error.
func asks(t *testing.T, path, name string) string {
	t.Helper()
	var g greeting
	if err := (Client{Path: path}).Get(t.Context(), "/v1/greeting", url.Values{"name": {name}}, &g); err != nil {
		return err.Error()
	}
	return g.From
}

func TestTheDaemonAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "vmapd.sock")
	_, stop := start(t, path, greet("daemon of "))
	testaid.WaitUntil(t, "the daemon answers", func() bool { return asks(t, path, "a") == "daemon of a" })
	for file, want := range map[string]os.FileMode{filepath.Dir(path): os.ModeDir | 0o700, path: os.ModeSocket | 0o600} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", file, info.Mode(), want)
		}
	}
	for _, tt := range []struct {
		path, name string
		want       Error
	}{
		{"/v1/greeting", "nobody", Error{http.StatusNotFound, "there is no nobody"}},
		{"/v1/greeting", "broken", Error{http.StatusInternalServerError, "read the greeting: no"}},
		{"/v1/other", "", Error{http.StatusNotFound, "the daemon answers /v1/other with 404 Not Found" + ofAnother}},
	} {
		err := Client{Path: path}.Get(t.Context(), tt.path, url.Values{"name": {tt.name}}, &greeting{})
		var got *Error
		if !errors.As(err, &got) || *got != tt.want {
			t.Errorf("%s of %q: %v, want %v", tt.path, tt.name, err, &tt.want)
		}
	}
	stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is there after the end: %v", err)
	}
	err := Client{Path: path}.Get(t.Context(), "/v1/greeting", nil, &greeting{})
	if want := "no daemon answers: there is no socket " + path; !errors.Is(err, ErrNoDaemon) ||
		!strings.HasPrefix(err.Error(), want) {
		t.Errorf("without a daemon: %v, want %q", err, want)
	}
}

// stale makes a socket file of a process that was killed.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestTheFileOfAProcessThatEndedIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmapd.sock")
	stale(t, path)
	want := "no daemon answers: the process that made the socket " + path + " has ended"
	if got := asks(t, path, ""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	start(t, path, greet("new"))
	testaid.WaitUntil(t, "the new daemon answers", func() bool { return asks(t, path, "") == "new" })
}

// Two daemons run for a moment during a rollout, and for good by mistake.
func TestTheSocketOfALivingProcessIsNotStolen(t *testing.T) {
	t.Parallel() // it waits
	path := filepath.Join(t.TempDir(), "vmapd.sock")
	_, stop := start(t, path, greet("first"))
	testaid.WaitUntil(t, "the first daemon answers", func() bool { return asks(t, path, "") == "first" })
	log, _ := start(t, path, greet("second"))
	const want = "another process answers at"
	testaid.WaitUntil(t, "the second daemon complains", func() bool { return strings.Contains(log.String(), want) })
	if got := asks(t, path, ""); got != "first" {
		t.Errorf("%q answers, want the first daemon", got)
	}
	stop()
	testaid.WaitUntil(t, "the second daemon takes over", func() bool { return asks(t, path, "") == "second" })
	if got := strings.Count(log.String(), want); got != 1 {
		t.Errorf("the second daemon complains %d times, want once:\n%s", got, log)
	}
}

func TestPlacesWhereNoSocketIsMade(t *testing.T) {
	dir := t.TempDir()
	testaid.Write(t, dir+"/file", "kept")
	if err := errors.Join(os.Mkdir(dir+"/open", 0o700), os.Chmod(dir+"/open", 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir + "/file":                          "is not a socket",
		dir + "/open/vmapd.sock":               "it is writable by other users",
		dir + "/file/vmapd.sock":               "not a directory",
		dir + "/" + strings.Repeat("long", 25): "invalid argument",
	} {
		l, err := listen(path)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: a socket was made", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if text := testaid.Read(t, dir+"/file"); text != "kept" {
		t.Errorf("the file has %q", text)
	}
}

// openFolder returns a new folder that other users may enter.
func openFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nobody is a user that owns nothing.
const nobody = 65534

// The kernel refuses other users' connections.
func TestOnlyRootIsAnswered(t *testing.T) {
	nettest.NeedRoot(t)
	path := filepath.Join(openFolder(t), "vmapd.sock")
	start(t, path, greet("daemon"))
	testaid.WaitUntil(t, "the daemon answers", func() bool { return asks(t, path, "") == "daemon" })
	err := onThread(nobody, func() error {
		_, err := net.Dial("unix", path)
		return err
	})
	got, want := Client{Path: path}.explain(t.Context(), err), "only root may ask the daemon at "+path
	if err == nil || !strings.HasPrefix(got.Error(), want) {
		t.Errorf("%v, want %q", got, want)
	}
}

// A client of root's must not believe a process of another user.
func TestOnlyRootIsBelieved(t *testing.T) {
	nettest.NeedRoot(t)
	dir := openFolder(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "vmapd.sock")
	var l net.Listener
	if err := onThread(nobody, func() (err error) {
		l, err = net.Listen("unix", path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got, want := asks(t, path, ""), "the process at "+path+" is not root's"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// onThread calls do as another user, on a thread that ends with it.
func onThread(uid int, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			result <- e
			return
		}
		result <- do()
	}()
	return <-result
}
