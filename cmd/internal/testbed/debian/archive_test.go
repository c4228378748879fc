package debian

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSources(t *testing.T) {
	const signed = "deb [arch=s390x signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
	got := Archive{Suites: []string{"trixie", "trixie-security", "trixie-backports"}, Architecture: "s390x"}.sources()
	want := signed + "http://deb.debian.org/debian trixie main\n" +
		signed + "http://deb.debian.org/debian-security trixie-security main\n" +
		signed + "http://deb.debian.org/debian trixie-backports main\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
