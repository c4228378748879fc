// Command skipcheck reads the output of "go test -v", counts, and fails if a test failed or was
// skipped, unless the reason is a known gap of this kernel. A skip that nobody notices is a test
// that does not exist.
//
//	go test -v | skipcheck [-package NAME]
//	skipcheck FILE...
//
// The last line but those of failures and of reasons has the sums, and with -package also the package and its time, as
// go test prints them. With files, it prints a table of the machines whose tests they have (see make test-vm).
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// allowed are the reasons for which a test may be skipped: the names of features that kernels lack.
func allowed() []string {
	return []string{
		"SCTP: this kernel has none",
		"IPv6 session affinity: this nft can't parse",
		"this nft can't handle a number in a concatenated key",
		"this kernel lacks table flags owner and persist",
		"no IPVS in the kernel",
		"IPVS does otherwise:",
		"userspace does otherwise:",
		"tracked flows can't be raised here",
		"this nft is older than kube-proxy needs",
		"this kernel has no fast path",
		"KUBE does not name a folder with kube-proxy",
		"-base does not name another version: make test-upgrade",
		"-image does not name a released image: make test-images-vm",
		"chromium is not installed: the page is not tested in a browser",
		"caddy is not installed: the proxy of TROUBLESHOOTING.md is not tried",
	}
}

func main() {
	pkg := flag.String("package", "", "the package whose tests run, for the line with the sums")
	flag.Parse()
	if flag.NArg() > 0 {
		if err := table(os.Stdout, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "skipcheck:", err)
			os.Exit(1)
		}
		return
	}
	r, began := newReport(), time.Now()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		r.line(in.Text())
	}
	if in.Err() != nil {
		fmt.Fprintln(os.Stderr, "skipcheck:", in.Err())
	}
	if *pkg != "" {
		r.heading = fmt.Sprintf("%s\t%.1fs\t", *pkg, time.Since(began).Seconds())
	}
	if !r.print(os.Stdout) || in.Err() != nil {
		os.Exit(1)
	}
}

// report is the result of a run so far.
type report struct {
	heading         string // of the sums: the package and its time
	passed, skipped int
	failed          []string            // tests, and that the program itself ended badly
	bad             []string            // tests skipped for no good reason
	test            string              // the one that is speaking
	output          map[string][]string // what tests said that did not pass, or not yet; "" is for the program
	excused         map[string]string   // reasons by test
	reasons         map[string]int      // tests skipped for each
}

func newReport() *report {
	return &report{output: map[string][]string{}, excused: map[string]string{}, reasons: map[string]int{}}
}

// print writes the sums, what failed tests said before them, and their names again as the last lines:
// of a long log, often only the end is kept. It reports whether all is well.
func (r *report) print(w io.Writer) bool {
	good := len(r.failed) == 0 && len(r.bad) == 0 && r.passed > 0
	if !good {
		for _, test := range slices.Sorted(maps.Keys(r.output)) {
			fmt.Fprintf(w, "=== %s\n%s\n", test, strings.Join(r.output[test], "\n"))
		}
	}
	result := ""
	if r.heading != "" {
		result = map[bool]string{true: "ok  \t", false: "FAIL\t"}[good]
	}
	fmt.Fprintf(w, "%s%s%d passed, %d failed, %d skipped\n", result, r.heading, r.passed, len(r.failed)+len(r.bad), r.skipped)
	for _, reason := range allowed() {
		if n := r.reasons[reason]; n > 0 {
			fmt.Fprintf(w, "  %d skipped: %s\n", n, strings.TrimRight(reason, ":"))
		}
	}
	for _, b := range r.bad {
		fmt.Fprintln(w, "skipped without a reason that is allowed:", b)
	}
	for _, f := range r.failed {
		fmt.Fprintln(w, "--- FAIL:", f)
	}
	return good
}

// marker is what a test prints before the lines of -test.v=test2json, which come as soon as each
// test has ended, also one within another.
const marker = "\x16"

func clean(line string) string { return strings.TrimSpace(strings.ReplaceAll(line, marker, "")) }

// ended reads the line of a test that has ended: "--- PASS: TestX (0.10s)".
func ended(line string) (result, name string, ok bool) {
	rest, ok := strings.CutPrefix(line, "--- ")
	if !ok {
		return "", "", false
	}
	result, name, ok = strings.Cut(rest, ": ")
	if i := strings.LastIndex(name, " ("); i >= 0 {
		name = name[:i]
	}
	return result, name, ok
}

func (r *report) line(raw string) {
	line := clean(raw)
	if mark, name, ok := strings.Cut(line, " "); ok && mark == "===" {
		fields := strings.Fields(name) // RUN, CONT, NAME or PAUSE, and the test
		r.test = fields[len(fields)-1]
		return
	}
	switch result, name, _ := ended(line); {
	case result == "PASS":
		r.passed++
		delete(r.output, name)
	case result == "FAIL":
		r.failed = append(r.failed, name)
	case strings.HasPrefix(line, "panic:"):
		r.failed = append(r.failed, line)
	case result == "SKIP":
		r.skipped++
		delete(r.output, name)
		if reason, ok := r.excused[name]; ok {
			r.reasons[reason]++
		} else {
			r.bad = append(r.bad, name)
		}
	case line == "PASS", line == "FAIL": // the program
		r.test = ""
		if line == "FAIL" && len(r.failed) == 0 {
			r.failed = append(r.failed, "the program, and none of its tests")
		}
	default:
		r.output[r.test] = append(r.output[r.test], strings.TrimRight(strings.ReplaceAll(raw, marker, ""), " "))
	}
	for _, reason := range allowed() {
		if strings.Contains(line, reason) {
			r.excused[r.test] = reason
		}
	}
}
