// Package page tests the page of vmapd ui in a real browser, Debian's chromium, with a cluster of
// 10,000 Services. It has tests alone, which run in a network namespace of their own.
package page

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestThePageInABrowser(t *testing.T) {
	chromium := needChromium(t)
	d := startDaemon(t, writeCluster(t))
	b := openBrowser(t, chromium)
	b.address = d.address
	b.do(t, chromedp.Navigate(b.address))
	b.has(t, "#count", "300 Services, and ")
	b.has(t, "#daemon", "node-1, nftables")
	b.has(t, "#node", "last sync")
	b.has(t, "#fresh", "refreshed")
	b.has(t, "#fresh", "every 3 s")

	t.Run("the light says what is wrong, and what to do", func(t *testing.T) {
		b.is(t, "document.querySelector('#light').className", "fail")
		b.has(t, "#verdict", "Some connections fail")
		b.has(t, "#reasons", "rejected")
		b.has(t, "#reasons .fail button, #reasons .warn button", "copy")
		b.is(t, "[...document.querySelectorAll('#services tr')].slice(0, 5).some(r => "+
			"r.textContent.includes('default/refused'))", "true") // on top
	})

	t.Run("a Service is searched, and drawn", func(t *testing.T) {
		b.search(t, "service-4321", 1)
		b.search(t, "default/web", 1)
		b.click(t, "#services a")
		b.has(t, "#chosen", "Service default/web")
		b.is(t, "document.querySelectorAll('.path .branches .box.serving').length", "3")
		b.has(t, ".path", "172.31.0.10 : 80")
		b.has(t, ".path", "10.1.0.2:8080")
		b.has(t, ".path", "share 33.3 %")
		// The endpoints are branches: side by side, not one after the other.
		b.is(t, "new Set([...document.querySelectorAll('.box.serving')].map(e => e.offsetTop)).size", "1")
		b.is(t, "document.querySelector('details').open", "false")
		b.click(t, "summary")
		for _, text := range []string{
			"map service-ips", "172.31.0.10 . tcp . 80", "goto endpoints-3-to-4", "chain endpoints-3-to-4",
			"numgen random mod 4 map @endpoints",
			"map endpoints", "172.31.0.10 . tcp . 80 . 2 : 10.1.0.3 . 8080",
		} {
			b.has(t, "details", text)
		}
		b.is(t, "document.querySelector('details').open", "true")
	})

	t.Run("connections are counted", func(t *testing.T) {
		b.search(t, "default/refused", 1)
		b.click(t, "#services a")
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
		b.has(t, "svg", "now") // the axis
	})

	t.Run("texts of objects are no markup", func(t *testing.T) {
		b.search(t, "hostile", 3)
		b.has(t, "#services", hostileName)
		b.has(t, "#reasons", hostileName)
		b.has(t, "#reasons", `<img src=x onerror=`)
		for i := range 3 {
			b.click(t, fmt.Sprintf("#services tr:nth-child(%d) a", i+1))
			row := "document.querySelectorAll('#services tr')[" + strconv.Itoa(i) + "]"
			b.is(t, "document.querySelector('#chosen').dataset.name === "+row+".dataset.name", "true")
		}
		b.is(t, "document.querySelectorAll('img, iframe, object, embed, [onload], [onerror], main script').length", "0")
		b.is(t, "window.hacked", "undefined")
	})
	t.Run("ages are right without a further answer", func(t *testing.T) {
		b.has(t, "#node", "Doctor")
		ask(t, b, chromedp.Evaluate[string](`document.body.append(Object.assign(document.createElement("time"),
			{id: "old", dateTime: new Date(Date.now() - 600_000).toISOString()})), ""`))
		b.has(t, "#old", "10 min ago")
	})

	t.Run("access", func(t *testing.T) { b.access(t) })
	if wrong := b.errors(); wrong != "" {
		t.Errorf("the console has:\n%s", wrong)
	}

	t.Run("the policy stops a script that is none of the page's", func(t *testing.T) {
		ask(t, b, chromedp.Evaluate[string](`document.body.append(Object.assign(document.createElement("script"),
			{textContent: "window.hacked = 4"})), ""`))
		b.is(t, "window.hacked", "undefined")
		testaid.WaitUntil(t, "the console tells of it", func() bool {
			return strings.Contains(b.errors(),
				"Content Security Policy")
		})
	})
	t.Run("before the first answer, nothing is refreshed", func(t *testing.T) {
		_ = d.Process.Signal(syscall.SIGSTOP)
		b.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(b.address))
		b.has(t, "#daemon", "asking the daemon")
		b.is(t, "document.querySelector('#fresh').textContent", "")
		_ = d.Process.Signal(syscall.SIGCONT)
		b.has(t, "#fresh", "refreshed")
	})
}
