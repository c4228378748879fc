package main

import (
	"bytes"
	"strings"
	"testing"
)

// try runs the command and returns its exit code and what it says.
func try(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, &out, &out)
	return code, out.String()
}

func TestErrorsSayWhatIsToBeDone(t *testing.T) {
	empty := t.TempDir()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"up"}, []string{"--kube", "kube-apiserver", "kubelet", "https://dl.k8s.io/"}},
		{[]string{"up", "--kube", empty}, []string{"kube-apiserver", "kubelet", "e2e.test", "agnhost", "coredns", "https://github.com/etcd-io/etcd/releases"}},
		{[]string{"up", "--kube", empty, "--proxy", "vmapd:ipvs"}, []string{"--proxy", "nftables"}},
		{[]string{"up", "--kube", empty, "--nodes", "0"}, []string{"0 nodes"}},
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
