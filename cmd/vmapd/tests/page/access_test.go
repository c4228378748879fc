package page

import (
	"context"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// scheme makes the browser prefer light or dark pages.
func (b *tab) scheme(t *testing.T, scheme string) {
	t.Helper()
	b.do(t, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// access checks what people need who have no mouse, a screen reader, weak eyes or a small screen.
func (b *tab) access(t *testing.T) {
	t.Helper()
	b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(b.address))
	b.is(t, "document.querySelectorAll('#services tr').length", "300")

	t.Run("with the keyboard alone", func(t *testing.T) {
		ask(t, b, chromedp.Evaluate[string](`document.querySelector("#search").focus(), ""`))
		b.do(t, chromedp.KeyEvent("default/web"))
		b.is(t, "document.querySelectorAll('#services tr').length", "1")
		b.do(t, chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab))
		b.is(t, "document.activeElement.textContent", "default/web")
		ask(t, b, chromedp.Evaluate[string](`showServices().then(() => "")`, chromedp.EvalAwaitPromise))
		b.is(t, "document.activeElement.textContent", "default/web") // also in the list that came meanwhile
		b.do(t, chromedp.KeyEvent(kb.Enter))
		b.has(t, "#chosen", "Service default/web")
		b.is(t, "document.activeElement.id", "right")
		b.is(t, "document.querySelector('#services [aria-current=true]').textContent", "default/web")
	})

	t.Run("names", func(t *testing.T) {
		b.is(t, "document.documentElement.lang", "en")
		b.is(t, "[...document.querySelectorAll('input')].every(e => e.labels.length === 1)", "true")
		b.is(t, "[...document.querySelectorAll('svg, section, [role=region]')].every(e => e.ariaLabel)", "true")
		b.is(t, "document.querySelectorAll('#list th').length", "3")
		b.is(t, "[...document.querySelectorAll('h1, h2')].map(h => h.tagName).join('').startsWith('H1H2H2')", "true")
	})

	for _, scheme := range []string{"dark", "light"} {
		t.Run("contrast, "+scheme, func(t *testing.T) {
			b.scheme(t, scheme)
			b.has(t, "#node", "Doctor")
			b.is(t, testaid.Read(t, "testdata/contrast.js"), "enough")
		})
	}

	t.Run("on a small screen", func(t *testing.T) {
		b.do(t, chromedp.EmulateViewport(phoneWidth, phoneHeight))
		b.is(t, "document.documentElement.scrollWidth <= innerWidth", "true")
		b.do(t, chromedp.EmulateViewport(screenWidth, screenHeight))
	})
}
