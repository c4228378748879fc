package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// An ordinary user who makes a user namespace is root in it: all scenarios hold there, too, and the daemon's
// own tests. This test runs the others in a process that has given up all privileges, which then makes
// the namespace itself (lab.Reexec), as "unshare -rn" does.
func TestUserspaceInAUserNamespaceOfAnOrdinaryUser(t *testing.T) {
	if err := lab.Available(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	c := exec.CommandContext(t.Context(), "/proc/self/exe")
	c.Args = []string{
		unprivilegedName, "vmapd.test", "-test.v", "-test.parallel=2",
		"-test.run=^(TestScenariosByUserspace|TestUserspaceDaemon)$/./^with_NET_ADMIN$",
	}
	log := &syncBuffer{}
	c.Stdout, c.Stderr = log, log
	err := c.Run()
	text := log.String()
	results := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- ([A-Z]+): (\S+)`).FindAllStringSubmatch(text, -1) {
		if m[1] == "FAIL" {
			t.Errorf("%s fails there", m[2])
		}
		if strings.Count(m[2], "/") >= 3 {
			results[m[1]]++
		}
	}
	t.Logf("flows in the user namespace: %v", results)
	differences, lacking := strings.Count(text, "userspace does otherwise"), strings.Count(text, "SCTP: this kernel has none")
	want := 0
	for _, s := range scenarios(t) {
		want += len(s.flows(t))
	}
	if err != nil || results["PASS"]+differences+lacking != want || !strings.Contains(text, "--- PASS: TestUserspaceDaemon ") {
		t.Errorf("%v: %d flows hold, %d are named differences and %d need SCTP, of %d:\n%s", err, results["PASS"], differences, lacking, want, tail(text))
	}
}

// tail returns the end of a long text.
func tail(s string) string {
	const most = 20_000
	if len(s) > most {
		s = s[len(s)-most:]
		_, s, _ = strings.Cut(s, "\n")
	}
	return s
}
