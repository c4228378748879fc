package metrics

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/conntrack"
)

// Figures that make no sense, or that can't be had, do not hide the others.
func TestABadFigureIsAlone(t *testing.T) {
	o := bare(config.NFTables)
	o.ConntrackTable = func() (int, int, error) { return 0, 0, strconv.ErrSyntax }
	list, _ := connections(t.Context())
	list[1].Name.Namespace = "\xff\xfe"
	o.ServiceConnections = func(context.Context) ([]kernel.Count, error) { return append(list, list[0]), nil }
	m := New(o)
	for range 2 { // errors are counted after a scrape
		families := scrape(t, m)
		if f, ok := families["vmapd_conntrack_entries"]; ok {
			t.Errorf("unknown, and told: %v", series(f))
		}
		if _, ok := families["vmapd_backend_info"]; !ok {
			t.Fatal("one bad figure hides others")
		}
		text := strings.Join(series(families["vmapd_service_connections_total"]), "\n")
		for _, want := range []string{`namespace="kube-system"`, `namespace="�"`} {
			if !strings.Contains(text, want) {
				t.Errorf("no series with %s:\n%s", want, text)
			}
		}
	}
	expect(t, "the same twice is an error", m, map[string][]string{
		"promhttp_metric_handler_errors_total": {`{cause="encoding"} 0`, `{cause="gathering"} 2`},
	})
}

func TestScrapesAndRoundsAtOnce(t *testing.T) {
	m := New(all(config.NFTables))
	builder := modeltest.Builder(modeltest.Config(), objects()...)
	var snapshots []*model.Snapshot
	for i := range 20 {
		modeltest.NewService("ns1/n"+strconv.Itoa(i)).On("172.30.1."+strconv.Itoa(i)).TCP("", int32(i%2)).Set(builder)
		snapshots = append(snapshots, builder.Snapshot())
	}
	var wait sync.WaitGroup
	for _, do := range []func(i int){
		func(i int) { m.Done(round(snapshots[i], nil)); m.Done(round(snapshots[i], bothFail)) }, // one after another
		func(int) { m.HTTP("/healthz", 200); m.HTTP("/readyz", 503) },
		func(int) {
			m.Conntrack(conntrack.Pass{Family: model.IPv6, Took: 1, Deleted: 1})
			m.ConfigRead(nil)
		},
		func(int) { get(t, m.Handler, "/metrics") },
		func(int) { get(t, m.Handler, "/metrics"); get(t, m.SLIs, "/metrics/slis") },
	} {
		wait.Go(func() {
			for i := range snapshots {
				do(i)
			}
		})
	}
	wait.Wait()
	expect(t, "afterwards", m, map[string][]string{
		"kubeproxy_sync_proxy_rules_service_changes_total": {`{} 40`},
		"kubeproxy_proxy_healthz_total":                    {`{code="200"} 20`, `{code="503"} 0`},
	})
}

// Prometheus would like OpenMetrics best, where le="1" is le="1.0".
func TestBucketsAreWrittenAsKubeProxyDoes(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4")
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	fed(all(config.NFTables)).Handler.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("Content-Type: %s", got)
	}
	if got, want := w.Header().Get("Process-Start-Time-Unix"), strconv.FormatInt(started.Unix(), 10); got != want {
		t.Errorf("started at %s, want %s", got, want)
	}
	body, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	const bucket = `kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="1"} `
	if !strings.Contains(string(text), bucket) {
		t.Errorf("no %s", bucket)
	}
}

func TestSLIs(t *testing.T) {
	m := New(bare(config.NFTables))
	m.HTTP("/livez", 200)
	m.HTTP("/livez", 503)
	families := parse(t, get(t, m.SLIs, "/metrics/slis"))
	if _, ok := families["process_start_time_seconds"]; !ok {
		t.Error("no process_start_time_seconds")
	}
	got := strings.Join(series(families["kubernetes_healthcheck"]), "\n")
	if want := `{name="sync",type="livez"} 0`; !strings.Contains(got, want) {
		t.Errorf("want %s, got\n%s", want, got)
	}
	got = strings.Join(series(families["kubernetes_healthchecks_total"]), "\n")
	for _, want := range []string{
		`{name="sync",status="success",type="livez"} `,
		`{name="sync",status="error",type="livez"} `,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %s, got\n%s", want, got)
		}
	}
}

func TestBuildInfo(t *testing.T) {
	for _, tt := range []struct{ name, version, want string }{
		{"a release", "v0.4.1", "v1.37.2+vmapd.0.4.1"},
		{
			"between releases", "v0.4.2-0.20260301110000-91e622112345+dirty",
			"v1.37.2+vmapd.0.4.2-0.20260301110000-91e622112345.dirty",
		},
		{"built without git", "(devel)", "v1.37.2+vmapd.unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := bare(config.NFTables)
			o.Build.Main.Version = tt.version
			f := scrape(t, New(o))["kubernetes_build_info"]
			if n := len(f.GetMetric()); n != 1 {
				t.Fatalf("%d series, want 1", n)
			}
			if got := series(f)[0]; !strings.Contains(got, `git_version="`+tt.want+`"`) {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
	o := bare(config.NFTables)
	o.Build = &debug.BuildInfo{}
	got := series(scrape(t, New(o))["kubernetes_build_info"])[0]
	if !strings.Contains(got, `git_version="v0.0.0+vmapd.unknown"`) {
		t.Errorf("of a program without build information: %s", got)
	}
}
