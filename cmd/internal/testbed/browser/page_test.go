package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "take the screenshots anew")

const (
	root    = "../../../.."
	address = "http://127.0.0.1:10249/"
)

// daemon is vmapd in this process' network namespace.
type daemon struct {
	*exec.Cmd
	log *bytes.Buffer
}

// startDaemon builds and starts vmapd, and returns when it has programmed everything.
func startDaemon(t *testing.T, manifests string) *daemon {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil || len(links) != 1 {
		t.Fatalf("%d network interfaces, error %v: this test needs a network namespace with no more than loopback; make test-page makes one", len(links), err)
	}
	program := filepath.Join(t.TempDir(), "vmapd")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, root+"/cmd/vmapd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	d := &daemon{exec.CommandContext(t.Context(), program, "--from", manifests, "--hostname-override=node-1", "--socket=", "--service-counters"), &bytes.Buffer{}}
	d.Stderr = d.log
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Process.Kill()
		_ = d.Wait()
		if t.Failed() {
			t.Logf("the daemon's log:\n%.4000s", d.log)
		}
	})
	waitUntil(t, "the daemon has programmed the Services", func() bool {
		status, body := get(t, "api/services?limit=1")
		return status == http.StatusOK && strings.Contains(body, `"left":`) && strings.Contains(body, `"since":`)
	})
	return d
}

// processor returns the time that the daemon has computed, in the kernel's ticks of 10 ms.
func (d *daemon) processor(t *testing.T) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // behind the program's name
	fields := strings.Fields(string(rest))
	const user, system, tick = 11, 12, 10 * time.Millisecond
	u, err1 := strconv.Atoi(fields[user])
	s, err2 := strconv.Atoi(fields[system])
	if err1 != nil || err2 != nil {
		t.Fatalf("%s: %v, %v", stat, err1, err2)
	}
	return time.Duration(u+s) * tick
}

func get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// tab is a tab of the browser.
type tab struct {
	context.Context

	mu    sync.Mutex
	wrong []string // errors on the console, and exceptions
}

func openBrowser(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: make test-page installs it", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1180, 840),
		chromedp.NoSandbox, // its own namespaces need privileges that root of a user namespace lacks
		chromedp.UserDataDir(t.TempDir()))
	process, end := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, closeTab := chromedp.NewContext(process)
	b := &tab{Context: ctx}
	t.Cleanup(func() {
		closeTab()
		end()
	})
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.do(t, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		return err
	}))
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.wrong = append(b.wrong, fmt.Sprintf("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *cdpruntime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += ": " + x.Description
		}
		b.wrong = append(b.wrong, text)
	}
}

func (b *tab) errors() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.wrong, "\n")
}

func (b *tab) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatalf("%v\n%s", err, b.errors())
	}
}

// patience is the longest time for a step.
const patience = time.Minute

// ask returns the value of an action.
func ask[T any](t *testing.T, b *tab, action chromedp.Action[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatalf("%v\n%s", err, b.errors())
	}
	return value
}

// is waits until an expression in the page has a value.
func (b *tab) is(t *testing.T, expression, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := ask(t, b, chromedp.Evaluate[string]("String("+expression+")"))
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %q, want %q\n%s", expression, got, want, b.errors())
		}
	}
}

func (b *tab) has(t *testing.T, selector, text string) {
	t.Helper()
	b.is(t, fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, text), "true")
}

// search types into the field, as a person does, and waits for so many rows that have the text.
func (b *tab) search(t *testing.T, text string, rows int) {
	t.Helper()
	ask(t, b, chromedp.Evaluate[string](`document.querySelector("#search").value = ""`))
	b.do(t, chromedp.SendKeys(chromedp.CSS("#search"), text))
	b.is(t, fmt.Sprintf("[...document.querySelectorAll('#services tr')].every(r => r.textContent.includes(%q)) && document.querySelectorAll('#services tr').length", text), strconv.Itoa(rows))
}

func (b *tab) screenshot(t *testing.T, name string) {
	t.Helper()
	png := ask(t, b, chromedp.CaptureScreenshot())
	const most = 150_000
	if len(png) > most {
		t.Errorf("%s has %d bytes, more than %d", name, len(png), most)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, "cmd/vmapd/deploy", name), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThePageInABrowser(t *testing.T) {
	d := startDaemon(t, writeCluster(t))
	b := openBrowser(t)
	b.do(t, chromedp.Navigate(address))
	b.is(t, "document.querySelectorAll('#services tr').length", "100")
	b.has(t, "#count", fmt.Sprintf("of %d service ports", many+3))
	b.has(t, "#daemon", "node-1, nftables")
	b.has(t, "#node", "the last took")
	b.paints(t)

	t.Run("a Service is searched, and its way drawn", func(t *testing.T) {
		b.search(t, "service-4321", 1)
		b.search(t, "default/web", 1)
		b.do(t, chromedp.Click(chromedp.CSS("#services tr")))
		b.has(t, "#chosen", "Service default/web")
		for _, text := range []string{
			"map service-ips", "172.31.0.10 . tcp . 80", "goto endpoints-3-to-4", "chain endpoints-3-to-4", "numgen random mod 4 map @endpoints",
			"map endpoints", "172.31.0.10 . tcp . 80 . 2 : 10.1.0.3 . 8080",
		} {
			b.has(t, "#way", text)
		}
		b.has(t, "#chosen", "10.1.0.2:8080")
		b.has(t, "#chosen", "33.3 %")
		b.search(t, "default", 2)
		b.screenshot(t, "page.png")
	})

	t.Run("connections are counted", func(t *testing.T) {
		b.search(t, "default/refused", 1)
		b.do(t, chromedp.Click(chromedp.CSS("#services tr")))
		b.has(t, "#chosen", "no endpoint is ready")
		b.has(t, "#chosen", "since counting began")
		const connections = 7
		for range connections {
			c, err := net.Dial("tcp", "172.31.0.11:80")
			if err == nil {
				_ = c.Close()
				t.Error("a Service without endpoints answers")
			}
		}
		b.has(t, "#chosen", "7 since counting began")
	})

	t.Run("texts of objects are no markup", func(t *testing.T) {
		b.search(t, "hostile", 3)
		b.has(t, "#services", hostileName)
		b.has(t, "#problems", hostileName)
		b.has(t, "#problems", `<img src=x onerror=`)
		for i := range 3 {
			b.do(t, chromedp.Click(chromedp.CSS(fmt.Sprintf("#services tr:nth-child(%d)", i+1))))
			b.is(t, "document.querySelector('#chosen').dataset.name === document.querySelectorAll('#services tr')["+strconv.Itoa(i)+"].dataset.name", "true")
		}
		b.is(t, "document.querySelectorAll('img, iframe, object, embed, [onload], [onerror], main script').length", "0")
		b.is(t, "window.hacked", "undefined")
	})
	if wrong := b.errors(); wrong != "" {
		t.Errorf("the console has:\n%s", wrong)
	}

	t.Run("the policy stops a script that is none of the page's", func(t *testing.T) {
		ask(t, b, chromedp.Evaluate[string](`document.body.append(Object.assign(document.createElement("script"), {textContent: "window.hacked = 4"})), ""`))
		b.is(t, "window.hacked", "undefined")
		waitUntil(t, "the console tells of it", func() bool { return strings.Contains(b.errors(), "Content Security Policy") })
	})
	b.do(t, chromedp.Navigate("about:blank"))
	d.costs(t)
}

// paints reports the time until the page had something to see, and until it had the Services: in a browser
// that has just been started, and when the page is loaded again.
func (b *tab) paints(t *testing.T) {
	t.Helper()
	b.paint(t, "in a new browser")
	const times = 5
	for range times {
		b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(address))
		b.is(t, "document.querySelectorAll('#services tr').length", "100")
		b.paint(t, "again")
	}
}

func (b *tab) paint(t *testing.T, when string) {
	t.Helper()
	b.is(t, `performance.getEntriesByName("first-contentful-paint").length`, "1")
	paint := ask(t, b, chromedp.Evaluate[float64](`performance.getEntriesByName("first-contentful-paint")[0].startTime`))
	answered := ask(t, b, chromedp.Evaluate[float64](`performance.getEntriesByType("resource").find(r => r.name.includes("api/services")).responseEnd`))
	t.Logf("%d Services, %s: first paint after %.0f ms, their list after %.0f ms", many, when, paint, answered)
}

// costs reports the daemon's processor time for each request of the page.
func (d *daemon) costs(t *testing.T) {
	t.Helper()
	for _, path := range []string{
		"", "api/status", "api/services?limit=100", "api/services?limit=500", "api/services?search=service-43&limit=100",
		"api/service?namespace=default&name=web", "api/doctor",
	} {
		const times = 50
		before := d.processor(t)
		for range times {
			if status, body := get(t, path); status != http.StatusOK {
				t.Errorf("/%s: %d %s", path, status, body)
			}
		}
		t.Logf("/%s: %.2f ms of processor", path, float64((d.processor(t)-before).Microseconds())/1000/times)
	}
}
