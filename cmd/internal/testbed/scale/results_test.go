package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestResultsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	measured := func(services int, ready float64) record {
		return record{
			Proxy: vmapd, Cluster: fmt.Sprintf("%dx10", services), Services: services, Endpoints: 10 * services, Ready: ready, Peak: 7,
		}
	}
	want := []record{measured(100, 1), measured(200, 3)}
	for _, r := range []record{measured(200, 1), want[0], want[1]} {
		if err := saveRecord(path, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRecords(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(record{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	testaid.Write(t, path, "{")
	if err := saveRecord(path, record{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error with the file's name", err)
	}
}

func TestPlotIsXMLWithEachResult(t *testing.T) {
	text := plot([]record{
		{Proxy: vmapd, Cluster: "100x10", Services: 100, Endpoints: 1000, Ready: 0.1, One: 1e-3},
		{Proxy: vmapd, Cluster: "100000x10", Services: 100_000, Endpoints: 1_000_000, Ready: 2, One: 1e-3},
		{Proxy: kubeProxy, Cluster: "100x10", Services: 100, Endpoints: 1000, Ready: 1, One: 0.5},
		{Proxy: vmapd, Cluster: "100x1", Services: 100, Endpoints: 100, Ready: 9},
	})
	titles := 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "title" {
			titles++
		}
	}
	const want = 2 * 3 // two times of three clusters; the fourth has another shape
	if titles != want {
		t.Errorf("%d points, want %d:\n%s", titles, want, text)
	}
}

// The plot in the repository is that of the results in the repository.
func TestPlotIsUpToDate(t *testing.T) {
	all, err := readRecords("results.json")
	if err != nil {
		t.Fatal(err)
	}
	got := testaid.Read(t, "results.svg")
	if want := plot(all); want != got {
		t.Error("results.svg is not the plot of results.json: run go run . -shapes none -results results")
	}
}
