package diagnosis

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A connection whose first endpoint is silent is shown with both.
func TestTraceShowsThatTheKernelChoseAgain(t *testing.T) {
	t.Parallel()
	w, known := traceWorld(t)
	const drop = "table inet dead { chain input { type filter hook input priority 0; tcp dport 8080 drop; }; }\n"
	for _, pod := range w.Pods()[:2] {
		vmapdtest.Feed(t, pod.Namespace, drop, "nft", "-f", "-")
	}
	args := append([]string{"172.30.0.10:80", "--from", "node", "--wait", "10s"}, known...)
	var story string
	for range 10 { // by chance, the first endpoint is the one that answers, or none of seven is
		story = startTrace(t, w.Node, args...).told(t)
		if strings.Contains(story, "accepted it; before, no answer") {
			break
		}
	}
	for _, want := range []string{
		"=> forwarded to 10.0.0.4:8080 by ", ", which accepted it; before, no answer came from 10.0.0.",
		"This is what vmapd expects.",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("the story lacks %q:\n%s", want, story)
		}
	}
}
