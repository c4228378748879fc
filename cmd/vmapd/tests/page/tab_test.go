package page

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/vmapd/vmapd/model/nettest"
)

// The sizes of screens.
const phoneWidth, phoneHeight, screenWidth, screenHeight = 390, 760, 1180, 710

// tab is a tab of the browser.
type tab struct {
	context.Context

	address string // of the page

	mu    sync.Mutex
	wrong []string // errors on the console, and exceptions
}

// needChromium skips a test where there is no browser.
func needChromium(t *testing.T) (path string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		nettest.Missing(t, "chromium (350 MB)")
	}
	return path
}

func openBrowser(t *testing.T, path string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(screenWidth, screenHeight),
		chromedp.NoSandbox, // its own namespaces need privileges that root of a user namespace lacks
		chromedp.UserDataDir(t.TempDir()))
	process, end := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, closeTab := chromedp.NewContext(process)
	b := &tab{Context: ctx}
	t.Cleanup(func() {
		closeTab()
		end()
	})
	if err := chromedp.Do(ctx); err != nil { // without a limit: the browser ends with this context
		t.Fatal(err)
	}
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
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
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

// click waits for an element, and clicks it in one step: the page may replace it at any time.
func (b *tab) click(t *testing.T, selector string) {
	t.Helper()
	b.is(t, fmt.Sprintf("(e => e !== null && (e.click(), true))(document.querySelector(%q))", selector), "true")
}

// search types into the field, as a person does, and waits for so many rows that have the text.
func (b *tab) search(t *testing.T, text string, rows int) {
	t.Helper()
	ask(t, b, chromedp.Evaluate[string](`document.querySelector("#search").value = ""`))
	b.do(t, chromedp.SendKeys(chromedp.CSS("#search"), text))
	b.is(t, fmt.Sprintf("[...document.querySelectorAll('#services tr')].every(r => r.textContent.includes(%q)) && document.querySelectorAll('#services tr').length", text), strconv.Itoa(rows))
}
