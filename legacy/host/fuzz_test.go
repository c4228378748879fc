package host

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model"
)

// FuzzSets reads the sets of other programs, as text and as the kernel's answers.
func FuzzSets(f *testing.F) {
	for _, text := range []string{
		"create THEIRS hash:ip family inet\nadd THEIRS 10.0.0.1\n", "add VMAPD-DROP 10.0.0.1,tcp:80\n", "create VMAPD-DROP x\nadd VMAPD-DROP ,\n",
		"add VMAPD-HAIRPIN 10.0.0.1,10.0.0.1/99\n", "create x", "add VMAPD-SOURCES 1.1.1.1,udp:,::/0 timeout 3\n", "add VMAPD-DROP 1.1.1.1,5\n",
		"\x02\x00\x00\x00\x0b\x00\x02\x00THEIRS\x00", "\x02\x00\x00\x00\x05\x00\x02\x00x", "\x02\x00\x00\x00\xff\xff\x02\x00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, f := range model.Families {
			sets, err := parseSets(strings.NewReader(text), f)
			if err == nil && len(sets) > 0 && !strings.Contains(text, "VMAPD") {
				t.Errorf("sets %v of %q", sets, text)
			}
		}
		_, _ = setName([]byte(text))
	})
}
