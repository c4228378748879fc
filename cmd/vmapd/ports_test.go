package main

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
)

// A reload makes only those parts of the metrics port anew whose settings changed.
func TestAReloadKeepsWhatDidNotChange(t *testing.T) {
	cert, key, _ := selfSigned(t, net.IPv4(127, 0, 0, 1))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n" +
		"contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(args ...string) *config.Config {
		t.Helper()
		var f config.Flags
		fs := pflag.NewFlagSet("vmapd", pflag.ContinueOnError)
		f.AddFlags(fs)
		if err := fs.Parse(append([]string{"--kubeconfig=" + kubeconfig}, args...)); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(&f)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tls, token := []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key}, "--metrics-auth=token"
	ps := &ports{log: slog.New(slog.DiscardHandler), current: &config.Config{}}
	for _, step := range []struct {
		name               string
		args               []string
		keepsTLS, keepsAPI bool
		hasTLS, hasAPI     bool
	}{
		{"the start", append(tls, token), false, false, true, true},
		{"profiling", append(tls, token, "--profiling"), true, true, true, true},
		{"no tokens", tls, true, false, true, false},
		{"no TLS", []string{token}, false, false, false, true},
		{"another address", []string{token, "--metrics-bind-address=127.0.0.1:1"}, true, true, false, true},
	} {
		before := ps.served
		c := load(step.args...)
		got, err := ps.metricsConfig(c)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if kept := got.TLS == before.TLS; kept != step.keepsTLS || (got.TLS != nil) != step.hasTLS {
			t.Errorf("%s: the certificate is kept: %t, there is one: %t", step.name, kept, got.TLS != nil)
		}
		if kept := got.Authorizer == before.Authorizer; kept != step.keepsAPI || (got.Authorizer != nil) != step.hasAPI {
			t.Errorf("%s: the authorizer is kept: %t, there is one: %t", step.name, kept, got.Authorizer != nil)
		}
		ps.current, ps.served = c, got
	}
}
