package report

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Ejected says why an endpoint gets no connections that is ejected, or whose Node is. The Node may be unknown. Without
// an instant, the text has no age.
func Ejected(of *model.Ejections, at netip.AddrPort, node string, now time.Time) string {
	text, why := "ejected by this node", Silence(of, at, node)
	e, ok := of.Endpoint(at)
	if !ok {
		e, _ = of.Node(node)
	}
	if !now.IsZero() && !e.Since.IsZero() {
		text += " " + Age(e.Since, now) + " ago"
	}
	if why == "" {
		why = "endpoints of its Node do not answer"
	}
	return text + ": " + why
}

// Silence says what is known of an endpoint that does not answer, whether or not it gets connections; "" if nothing is.
func Silence(of *model.Ejections, at netip.AddrPort, node string) string {
	if e, ok := of.Endpoint(at); ok {
		return fmt.Sprintf("%s of %s unanswered, probe timed out", Plural(e.Packets, "packet"), Plural(e.Clients, "client"))
	}
	if _, ok := of.Node(node); ok {
		return fmt.Sprintf("endpoints of Node %s do not answer", node)
	}
	return ""
}
