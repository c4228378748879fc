package main

import (
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

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
