package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	got, err := parse("'http://mirror/debian/pool/main/k/kmod/kmod_34.2-2_riscv64.deb' kmod_1%3a34.2-2_riscv64.deb 99 SHA256:"+sum+"\n", "http://mirror", "riscv64")
	if diff := cmp.Diff([]string{"riscv64 kmod 1:34.2-2 " + sum + " pool/main/k/kmod/kmod_34.2-2_riscv64.deb"}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{
		"'http://mirror/debian/x_1_amd64.deb' x_1_amd64.deb 99 MD5Sum:00\n",
		"'http://elsewhere/debian/x_1_amd64.deb' x_1_amd64.deb 99 SHA256:" + sum + "\n",
		"'http://mirror/debian/x.deb' x.deb 99 SHA256:" + sum + "\n",
	} {
		if got, err := parse(bad, "http://mirror", "amd64"); err == nil {
			t.Errorf("%q became %q", bad, got)
		}
	}
}
