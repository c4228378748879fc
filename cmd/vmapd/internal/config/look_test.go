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
		text    string // empty: as it was
		settled bool
		said    string
	}{
		{"", true, ""},
		{"hostnameOverride: two\n", false, ""},
		{"hostnameOverride: three\n", false, ""}, // still being written
		{"", true, "three"},
		{"", true, ""},
		{"oomScoreAdj: 5000\n", false, ""},
		{"", true, "an error"},
		{"oomScoreAdj: 5000\n# Wrong in the same way.\n", false, ""},
		{"", true, ""},
		{"oomScoreAdj: 6000\n", false, ""},
		{"", true, "an error"},
		{"hostnameOverride: three\n", false, ""},
		{"", true, "three"},
	} {
		if step.text != "" {
			write(step.text)
		}
		said := ""
		settled := f.look(func(c *Config, err error) {
			if said = "an error"; err == nil {
				said = c.Model().NodeName
			}
		})
		if settled != step.settled || said != step.said {
			t.Errorf("after %q: settled %v, said %q; want %v, %q", step.text, settled, said, step.settled, step.said)
		}
	}
}
