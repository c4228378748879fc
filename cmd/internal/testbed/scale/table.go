package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// writeTable writes a column for each result.
func writeTable(w io.Writer, results []*result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value func(*result) string) {
		fmt.Fprintf(t, "%s\t", name)
		for _, r := range results {
			fmt.Fprintf(t, "%s\t", value(r))
		}
		fmt.Fprintln(t)
	}
	row("cluster", func(r *result) string { return r.shape.String() })
	row("Services", func(r *result) string { return strconv.Itoa(r.size.Services) })
	row("EndpointSlices", func(r *result) string { return strconv.Itoa(r.size.Slices) })
	row("endpoints", func(r *result) string { return strconv.Itoa(r.size.Endpoints) })
	row("load average of the machine", func(r *result) string { return r.load })

	row("start: all objects read", func(r *result) string { return seconds(r.cold.listed) })
	row("ready", func(r *result) string { return seconds(r.cold.ready) })
	row("processor, user", func(r *result) string { return seconds(r.cold.user) })
	row("processor, system", func(r *result) string { return seconds(r.cold.system) })
	row("operations", func(r *result) string { return strconv.Itoa(r.cold.traffic.operations) })
	row("sent to the kernel", func(r *result) string { return megabytes(int64(r.cold.traffic.bytes)) })
	row("longest batch", func(r *result) string { return milliseconds(r.cold.longestBatch) })
	row("longest transaction, at most", func(r *result) string { return milliseconds(r.longestGap) })
	row("memory, peak", func(r *result) string { return megabytes(r.peak) })
	row("memory, settled", func(r *result) string { return megabytes(r.settled) })

	writeLatency(row, "one change", func(r *result) *latency { return &r.idle })
	writeLatency(row, "one of many changes", func(r *result) *latency { return &r.churn })
	row("many: slices written", func(r *result) string { return strconv.Itoa(r.churned.writes) })
	row("… per second", func(r *result) string { return fmt.Sprintf("%.0f", float64(r.churned.writes)/r.churned.took.Seconds()) })
	row("processor, of one", func(r *result) string {
		const percent = 100
		return fmt.Sprintf("%.0f %%", percent*r.churned.processor.Seconds()/r.churned.took.Seconds())
	})
	row("batches", func(r *result) string { return strconv.Itoa(r.churned.traffic.batches) })
	row("operations", func(r *result) string { return strconv.Itoa(r.churned.traffic.operations) })
	row("sent to the kernel", func(r *result) string { return megabytes(int64(r.churned.traffic.bytes)) })
	row("longest batch", func(r *result) string { return milliseconds(r.churned.longestBatch) })
	row("memory, peak", func(r *result) string { return megabytes(r.churned.peak) })
	row("memory, after", func(r *result) string { return megabytes(r.churned.rss) })

	row("compiled afresh: differences", func(r *result) string { return strconv.Itoa(r.differences.operations) })
	row("restart: all objects read", func(r *result) string { return seconds(r.restart.listed) })
	row("ready", func(r *result) string { return seconds(r.restart.ready) })
	row("processor", func(r *result) string { return seconds(r.restart.user + r.restart.system) })
	row("operations", func(r *result) string { return strconv.Itoa(r.restart.traffic.operations) })
	row("memory, peak", func(r *result) string { return megabytes(r.restart.peak) })
	_ = t.Flush() // as with Fprintf
	for _, r := range results {
		fmt.Fprintf(w, "%v: %s\n", r.shape, r.complaints)
	}
}

func writeLatency(row func(string, func(*result) string), name string, of func(*result) *latency) {
	row(name+": p50", func(r *result) string { return milliseconds(of(r).p50) })
	row("p99", func(r *result) string { return milliseconds(of(r).p99) })
	row("worst", func(r *result) string { return milliseconds(of(r).worst) })
	row("timed", func(r *result) string { return strconv.Itoa(of(r).changes) })
	row("missed", func(r *result) string { return strconv.Itoa(of(r).missed) })
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
