package browser

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

func TestThePageInABrowser(t *testing.T) {
	chromium := needChromium(t)
	d := startDaemon(t, writeCluster(t))
	d.examines(t)
	b := openBrowser(t, chromium)
	b.do(t, chromedp.Navigate(address))
	b.is(t, "document.querySelectorAll('#services tr').length", "100")
	b.has(t, "#count", fmt.Sprintf("of %d service ports", many+4))
	b.has(t, "#daemon", "node-1, nftables")
	b.has(t, "#node", "the last took")
	t.Run("the first paint waits for nothing", func(t *testing.T) { b.paints(t) })

	t.Run("a Service is searched, and its way drawn", func(t *testing.T) {
		b.search(t, "service-4321", 1)
		b.search(t, "default/web", 1)
		b.do(t, chromedp.Click(chromedp.CSS("#services a")))
		b.has(t, "#chosen", "Service default/web")
		for _, text := range []string{
			"map service-ips", "172.31.0.10 . tcp . 80", "goto endpoints-3-to-4", "chain endpoints-3-to-4", "numgen random mod 4 map @endpoints",
			"map endpoints", "172.31.0.10 . tcp . 80 . 2 : 10.1.0.3 . 8080",
		} {
			b.has(t, ".way", text)
		}
		b.has(t, "#chosen", "10.1.0.2:8080")
		b.has(t, "#chosen", "33.3 %")
	})

	t.Run("connections are counted", func(t *testing.T) {
		b.search(t, "default/refused", 1)
		b.do(t, chromedp.Click(chromedp.CSS("#services a")))
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
			b.do(t, chromedp.Click(chromedp.CSS(fmt.Sprintf("#services tr:nth-child(%d) a", i+1))))
			b.is(t, "document.querySelector('#chosen').dataset.name === document.querySelectorAll('#services tr')["+strconv.Itoa(i)+"].dataset.name", "true")
		}
		b.is(t, "document.querySelectorAll('img, iframe, object, embed, [onload], [onerror], main script').length", "0")
		b.is(t, "window.hacked", "undefined")
	})
	t.Run("doctor's lines have an age", func(t *testing.T) {
		b.has(t, "#doctor", "examined")
		b.has(t, "#doctor", "forwarding")
		b.is(t, `Date.now() - Date.parse(document.querySelector("#doctor time").dateTime) < 60_000`, "true")
		// An age is right without a further answer.
		ask(t, b, chromedp.Evaluate[string](`document.body.append(Object.assign(document.createElement("time"), {id: "old", dateTime: new Date(Date.now() - 600_000).toISOString()})), ""`))
		b.has(t, "#old", "10 min ago")
	})

	t.Run("access", func(t *testing.T) { b.access(t) })
	t.Run("screenshots", func(t *testing.T) { b.screenshots(t) })
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

// examines reports the processor time of an examination of the node. Requests begin one each 30 seconds at most.
func (d *daemon) examines(t *testing.T) {
	t.Helper()
	before := d.processor(t)
	if _, body := get(t, "api/doctor"); !strings.Contains(body, `"check":"forwarding"`) {
		t.Errorf("the first report has no lines: %.500s", body)
	}
	t.Logf("an examination with its answer: %v of processor", d.processor(t)-before)
}

// costs checks the daemon's processor time for each request of the page.
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
		const most = 20 * time.Millisecond
		took := (d.processor(t) - before) / times
		t.Logf("/%s: %v of processor", path, took)
		if took > most {
			t.Errorf("/%s: %v of processor for a request, more than %v", path, took, most)
		}
	}
}
