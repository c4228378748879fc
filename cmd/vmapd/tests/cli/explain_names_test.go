package cli

import (
	"sort"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/daemon"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/objects"
	"github.com/vmapd/vmapd/sync/informer/apitest"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// The daemon reads what one connection is about, and nothing of other namespaces.
func TestTheDaemonReadsWhatAConnectionIsAbout(t *testing.T) {
	for _, tt := range []struct {
		name, from, to string
		want           string // Services, slices
	}{
		{"a Service by name", "203.0.113.7", "svc/web:http", "ns1/web; ns1/web-1"},
		{"a Service by address", "203.0.113.7", "172.30.0.41:80", "ns1/web; ns1/web-1"},
		{"another proxy's Service", "203.0.113.7", "172.30.0.42:80", "ns1/mesh; ns1/web-1"},
		{"a pod's own address", "203.0.113.7", "10.0.0.2:9999", "; ns1/web-1"},
		{"a pod by name", "pod/web-1", "svc/empty:80", "ns1/empty; ns1/web-1"},
		{"nothing", "203.0.113.7", "203.0.113.9:80", "; "},
		{"a name that is not there", "203.0.113.7", "svc/wbe:80", "; "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newCluster(t, cluster, pods)
			q, err := names.Query{}.Between(tt.from, tt.to)
			if err != nil {
				t.Fatal(err)
			}
			q.NodeName = "node-1"
			c, err := client.New(s.Config())
			if err != nil {
				t.Fatal(err)
			}
			d, refused, err := objects.Read(t.Context(), c, &q, daemon.ErrNoPods, "node-1")
			if err != nil || refused != nil {
				t.Fatal(err, refused)
			}
			var services, slices []string
			for _, s := range d.Services {
				services = append(services, s.String())
			}
			for _, s := range d.Slices {
				slices = append(slices, s.String())
			}
			sort.Strings(services)
			if got := strings.Join(services, " ") + "; " + strings.Join(slices, " "); got != tt.want {
				t.Errorf("want %q, got %q", tt.want, got)
			}
			for _, q := range s.Requests("") {
				if q.Resource == apitest.Pods || q.Verb == "watch" {
					t.Errorf("%s %s: the daemon has no permission", q.Method, q.URL.Path)
				}
			}
		})
	}
}
