package config

import (
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// A file is read when it has been the same at two looks, and an error is said once.
func TestLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	write := func(text string) {
		t.Helper()
		const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
		testaid.Write(t, path, header+text)
	}
	write("")
	var flags Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlags(fs)
	if err := fs.Parse([]string{"--config", path}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(&flags)
	if err != nil {
		t.Fatal(err)
	}
	f := follower{flags: &flags, files: c.files}
	for _, step := range []struct {
		text string // empty: as it was
		said string
	}{
		{"", ""},
		{"hostnameOverride: two\n", ""},
		{"hostnameOverride: three\n", ""}, // still being written
		{"", "three"},
		{"", ""},
		{"oomScoreAdj: 5000\n", ""},
		{"", "an error"},
		{"oomScoreAdj: 5000\n# Wrong in the same way.\n", ""},
		{"", ""},
		{"oomScoreAdj: 6000\n", ""},
		{"", "an error"},
		{"hostnameOverride: three\n", ""},
		{"", "three"},
	} {
		if step.text != "" {
			write(step.text)
		}
		said := ""
		f.look(func(c *Config, err error) {
			if said = "an error"; err == nil {
				said = c.Model().NodeName
			}
		})
		if said != step.said {
			t.Errorf("after %q: said %q; want %q", step.text, said, step.said)
		}
	}
}
