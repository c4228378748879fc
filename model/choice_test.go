package model_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

func TestAffinity(t *testing.T) {
	kind := func(s modeltest.Service, affinity string) modeltest.Service {
		s.SessionAffinity = affinity
		return s
	}
	const bounds = "Service ns1/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: "
	for _, tt := range []struct {
		name    string
		service modeltest.Service
		want    string
		problem string
	}{
		{"None", kind(web(), "None"), "", ""},
		{"ClientIP, with the API's default", kind(web(), "ClientIP"), " affinity 3h0m0s", ""},
		{"the shortest", web().Sticky(1), " affinity 1s", ""},
		{"the longest", web().Sticky(86400), " affinity 24h0m0s", ""},
		{"too short", web().Sticky(0), " affinity 3h0m0s", bounds + "0 is not between 1 and 86400: treated as 10800"},
		{"too long", web().Sticky(86401), " affinity 3h0m0s", bounds + "86401 is not between 1 and 86400: treated as 10800"},
		{"longer than any duration", web().Sticky(1<<31 - 1), " affinity 3h0m0s", bounds + "2147483647 is not between 1 and 86400: treated as 10800"},
		{
			"of a kind that nobody knows", kind(web().Sticky(60), "ClientIp"), "",
			`Service ns1/web: spec.sessionAffinity: "ClientIp" is neither None nor ClientIP: treated as None`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.Snapshot(modeltest.Config(), tt.service, webSlice())
			checkPorts(t, s, "ns1/web:http/tcp [172.30.0.41:80 forward]"+tt.want+" 10.0.0.2:8080, 10.0.0.3:8080")
			var problems []string
			if tt.problem != "" {
				problems = append(problems, tt.problem)
			}
			checkProblems(t, s, problems...)
		})
	}
}

// Each annotation has examples of its values. Beside a value that is not valid, the problem says what happens instead.
func TestAnnotations(t *testing.T) {
	for _, a := range model.Annotations {
		if a.Sets == "" || a.Otherwise == "" || len(a.Examples) == 0 {
			t.Errorf("%s is not described: %+v", a.Name, a)
		}
		for _, value := range a.Examples {
			if a.Name == "vmapd.io/outlier-detection" {
				break // of earlier versions: no value is valid
			}
			checkProblems(t, modeltest.Snapshot(modeltest.Config(), web().Annotated(a.Name, value)))
		}
		got := modeltest.Snapshot(modeltest.Config(), web().Annotated(a.Name, "\n")).Problems
		if len(got) != 1 || got[0].Field != "metadata.annotations["+a.Name+"]" || !strings.HasSuffix(got[0].Message, ": "+a.Otherwise) {
			t.Errorf("%s: %q has the problems %q", a.Name, "\n", got)
		}
		checkProblems(t, modeltest.Snapshot(modeltest.Config(), web().Annotated(a.Name, "")))
	}
}
