package status_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Endpoints that are ejected are counted, and said with the reason; a Service is no worse where most are silent.
func TestEjectedEndpoints(t *testing.T) {
	on := web().Annotated(model.AnnotationOutlierDetection, "true")
	w := newWorld(on, webSlice().Ready("10.0.0.4"), modeltest.NewService("ns1/one").On("172.30.0.42").TCP("", 80).Annotated(model.AnnotationOutlierDetection, "true"),
		modeltest.NewSlice("ns1/one-1", "one").TCP("", 8080).Ready("10.0.0.9"))
	silent := &model.Ejections{}
	for _, a := range []string{"10.0.0.2:8080", "10.0.0.9:8080"} {
		silent.Endpoints = append(silent.Endpoints, model.Ejection{Endpoint: netip.MustParseAddrPort(a), Packets: 3, Clients: 1})
	}
	w.SetEjections(silent)
	v := w.round(10)
	checkText(t, `
NAMESPACE  NAME  PORT    CLUSTER-IP   ENDPOINTS  AGE  STATE
ns1        one   80/tcp  172.30.0.42  1          90s  forwarded
ns1        web   80/tcp  172.30.0.41  2          90s  forwarded; 1 endpoint ejected
2 service ports: 2 forwarded
`, services(t, v, status.Filter{}, false))
	const want = "10.0.0.2:8080/tcp  <none>  <none>       <none>  <none>  <none>       <none>   " +
		"ejected by this node: 3 packets of 1 client unanswered, probe timed out\n"
	if got := one(t, v, "web", status.Found{}); !strings.Contains(got, want) {
		t.Errorf("no %q in:\n%s", want, got)
	}
}
