package page

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// moments of a navigation, in milliseconds since it began. The last one is when the first content was on the
// screen, as browsers tell it.
var moments = []string{"answered", "parsed", "painted", "on the screen"}

const readMoments = `(() => {
	const page = performance.getEntriesByType("navigation")[0], paint = performance.getEntriesByName("first-contentful-paint")[0];
	return [page.responseEnd, page.domInteractive, paint.paintTime, paint.startTime];
})()`

// paints reports how long it takes until a page is seen, in a tab that was just opened, in a browser that runs: of
// the page, and of one that has a line of text and no more. The difference is the page's own.
func (b *tab) paints(t *testing.T) {
	t.Helper()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte("<!doctype html>\n<title>plain</title>\n<p>one line\n"))
	}))
	defer plain.Close()
	const times = 20
	var samples [2][][]float64 // of the plain page, and of ours
	for i := range 2 * times {
		which := (i + i/2) % 2 // in turn, and each of them first in turn
		samples[which] = append(samples[which], b.paint(t, []string{plain.URL, b.address}[which]))
	}
	var medians [2]float64
	for which, name := range []string{"a page of one line", "this page"} {
		t.Logf("%s, the median of %d new tabs (and the 95th percentile), with %d Services:", name, times, many)
		for i, moment := range moments {
			var all []float64
			for _, s := range samples[which] {
				all = append(all, s[i])
			}
			slices.Sort(all)
			medians[which] = all[times/2]
			t.Logf("\t%-13s after %3.0f ms (%3.0f ms)", moment, all[times/2], all[times*95/100])
		}
	}
	// How fast this machine paints is no matter of the page; an answer of the daemon before the first paint, or a long
	// script, would take as long as painting.
	const most = 3
	if medians[1] > most*medians[0] {
		t.Errorf("the first paint takes %.0f ms, more than %d times that of a page of one line", medians[1], most)
	}
}

// paint opens a page in a new tab, and returns the moments.
func (b *tab) paint(t *testing.T, url string) []float64 {
	t.Helper()
	tab, closes := b.open(t)
	defer closes()
	tab.do(t, chromedp.Navigate(url))
	tab.is(t, `performance.getEntriesByName("first-contentful-paint").length`, "1")
	if url == b.address {
		tab.is(t, "document.querySelectorAll('#services tr').length", "300")
		// However many Services there are, the page has not heard of them yet.
		tab.is(t, `performance.getEntriesByType("resource").every(r => r.startTime > performance.getEntriesByName("first-contentful-paint")[0].paintTime)`, "true")
	}
	return ask(t, tab, chromedp.Evaluate[[]float64](readMoments))
}
