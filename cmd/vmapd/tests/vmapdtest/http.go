package vmapdtest

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prom "github.com/prometheus/common/model"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
)

// Where the daemon serves metrics and health.
const (
	MetricsURL = "http://127.0.0.1:10249"
	HealthURL  = "http://" + lab.NodeIP4 + ":10256"
)

// Page is an answer over HTTP.
type Page struct {
	Status int
	Body   string
	Header http.Header
	Err    error
}

func (p Page) String() string {
	if p.Err != nil {
		return p.Err.Error()
	}
	return fmt.Sprintf("%d: %.300s", p.Status, p.Body)
}

// Get asks for a URL from a namespace. Headers are names and values in turn.
func Get(ns *lab.Namespace, url string, headers ...string) Page {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: ns.DialContext}
	client := http.Client{Timeout: 10 * time.Second, Transport: transport}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return Page{Err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return Page{Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return Page{Status: response.StatusCode, Body: string(body), Header: response.Header, Err: err}
}

// WantStatus waits until a URL answers with a status.
func WantStatus(t *testing.T, ns *lab.Namespace, url string, want int) Page {
	t.Helper()
	var p Page
	Eventually(t, func() string {
		if p = Get(ns, url); p.Status == want {
			return ""
		}
		return fmt.Sprintf("GET %s: %v; want %d", url, p, want)
	})
	return p
}

// Scrape returns the metrics of the daemon on the node.
func (c *Cluster) Scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	p := WantStatus(t, c.Node, MetricsURL+"/metrics", http.StatusOK)
	parser := expfmt.NewTextParser(prom.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(p.Body))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Value is that of the first series of a metric that has all of some labels, given as
// name=value; of a histogram, how much was observed. It is false if there is none.
func Value(all map[string]*dto.MetricFamily, name string, labels ...string) (float64, bool) {
	for _, m := range all[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
			continue
		}
		switch {
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

// Overview is what status shows.
func Overview(t *testing.T, path string) (all status.Overview) {
	t.Helper()
	if err := (socket.Client{Path: path}).Get(t.Context(), "/v1/status", nil, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// Problems are what status says is wrong.
func Problems(o status.Overview) string {
	list := slices.Clone(o.Problems)
	for _, l := range o.Findings {
		list = append(list, l.Text)
	}
	return strings.Join(list, "\n")
}
