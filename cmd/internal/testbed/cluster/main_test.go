package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// try runs the command and returns its exit code and what it says.
func try(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

func TestErrorsSayWhatIsToBeDone(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty) // without Debian's package of etcd's clients
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"test"}, []string{"make -C cmd/internal/testbed test-cluster KUBE=DIR", "https://dl.k8s.io/"}},
		{[]string{"up"}, []string{"--kube DIR", "https://dl.k8s.io/"}},
		{[]string{"test", "--kube", empty}, []string{"kube-apiserver", "kubelet", "e2e.test", "agnhost", "coredns", "etcdctl", "etcdutl", "https://github.com/etcd-io/etcd/releases"}},
		{[]string{"up", "--kube", empty, "--proxy", "vmapd:ipvs"}, []string{"--proxy", "nftables"}},
		{[]string{"test", "--kube", empty, "--proxies", "cilium"}, []string{"--proxies", "cilium"}},
		{[]string{"up", "--kube", empty, "--nodes", "0"}, []string{"0 nodes"}},
		{[]string{"up", "--kube", empty, "--name", "A"}, []string{"name of the cluster"}},
		{[]string{"kubectl", "--dir", empty, "--", "get", "pods"}, []string{"no cluster is in " + empty}},
		{[]string{"exec", "--dir", empty, "n1", "--", "true"}, []string{"no cluster is in " + empty}},
	} {
		code, said := try(t, test.args...)
		if code != 1 {
			t.Errorf("%v: want exit code 1, got %d", test.args, code)
		}
		for _, want := range test.want {
			if !strings.Contains(said, want) {
				t.Errorf("%v: want %q, got %q", test.args, want, said)
			}
		}
		if got := strings.Count(said, "\n"); got != 1 {
			t.Errorf("%v: want one line, got %q", test.args, said)
		}
	}
}

// A program that a step runs is no program that the user asked for: its error is said.
func TestOnlyProgramsOfTheUserGiveTheirExitCode(t *testing.T) {
	failing := exec.Command("sh", "-c", "exit 7")
	if err := attach(&cobra.Command{}, failing); !errors.Is(err, exitError(7)) {
		t.Errorf("want %v, got %v", exitError(7), err)
	}
	for _, test := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{exitError(7), 7, ""},
		{fmt.Errorf("load image: %w", exec.Command("sh", "-c", "exit 7").Run()), 1, "cluster: load image: exit status 7\n"},
	} {
		var out bytes.Buffer
		code := report(t.Context(), test.err, &out)
		if code != test.code || out.String() != test.said {
			t.Errorf("%v: want %d and %q, got %d and %q", test.err, test.code, test.said, code, out.String())
		}
	}
}
