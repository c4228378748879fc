package trace

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
)

// A connection to an endpoint that outlier detection has found silent fails for that reason, in most cases.
func TestASilentEndpointIsSaid(t *testing.T) {
	in := input(whole(), nil)
	for _, at := range []string{endpoint.String(), "10.0.0.4:8080"} {
		in.Expected = &explain.Explanation{Silent: map[string]string{at: "3 packets of 1 client unanswered, probe timed out"}}
		const want = "note: Outlier detection has found 10.0.0.3:8080 silent: 3 packets of 1 client"
		if got := text(t, NewStory(in)); strings.Contains(got, want) != (at == endpoint.String()) {
			t.Errorf("%s is silent:\n%s", at, got)
		}
	}
}
