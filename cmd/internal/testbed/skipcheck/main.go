// Command skipcheck reads the output of "go test -v", counts, and fails if a test failed or was
// skipped, unless the reason is a known gap of this kernel. A skip that nobody notices is a test
// that does not exist.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// allowed are the reasons for which a test may be skipped: the names of features that kernels lack.
func allowed() []string {
	return []string{
		"SCTP: the lab speaks TCP and UDP",
		"IPv6 session affinity: this nft can't parse",
		"this nft can't handle a number in a concatenated key",
		"this nft loads numbers that are keys of a map in the wrong byte order",
		"this kernel lacks table flags owner and persist",
		"no IPVS in the kernel",
		"IPVS does otherwise:",
		"tracked flows can't be raised here",
	}
}

func main() {
	r := report{excused: map[string]string{}, reasons: map[string]int{}}
	var output strings.Builder // worth reading only if something is wrong
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		fmt.Fprintln(&output, in.Text())
		r.line(strings.TrimSpace(in.Text()))
	}
	wrong := in.Err() != nil || r.failed > 0 || len(r.bad) > 0 || r.passed == 0
	if wrong {
		fmt.Print(output.String())
	}
	for _, b := range r.bad {
		fmt.Println("skipped without a reason that is allowed:", b)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed+len(r.bad), r.skipped)
	for _, reason := range allowed() {
		if n := r.reasons[reason]; n > 0 {
			fmt.Printf("  %d skipped: %s\n", n, strings.TrimRight(reason, ":"))
		}
	}
	if wrong {
		os.Exit(1)
	}
}

// report is the result of a run so far.
type report struct {
	passed, failed, skipped int
	bad                     []string          // tests skipped for no good reason
	test                    string            // the one that is speaking
	excused                 map[string]string // reasons by test
	reasons                 map[string]int    // tests skipped for each
}

func (r *report) line(line string) {
	if mark, name, ok := strings.Cut(line, " "); ok && mark == "===" {
		fields := strings.Fields(name) // RUN, CONT, NAME or PAUSE, and the test
		r.test = fields[len(fields)-1]
		return
	}
	result, name, _ := strings.Cut(line, ": ")
	name, _, _ = strings.Cut(name, " ")
	switch {
	case result == "--- PASS":
		r.passed++
	case result == "--- FAIL", strings.HasPrefix(line, "panic:"), line == "FAIL":
		r.failed++
	case result == "--- SKIP":
		r.skipped++
		if reason, ok := r.excused[name]; ok {
			r.reasons[reason]++
		} else {
			r.bad = append(r.bad, name)
		}
	}
	for _, reason := range allowed() {
		if strings.Contains(line, reason) {
			r.excused[r.test] = reason
		}
	}
}
