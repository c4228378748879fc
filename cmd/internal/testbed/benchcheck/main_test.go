package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What benchstat prints of two files, in each of which every benchmark has run six times.
const comparison = `goos: linux
pkg: example.org/x/model
,base,,head,,,
,sec/op,CI,sec/op,CI,vs base,P
Slow-2,1.0125e-06,1%,1.313e-06,1%,+29.68%,p=0.002 n=6
Slower-2,1.0125e-06,1%,1.1e-06,1%,+8.64%,p=0.002 n=6
Fast-2,1.313e-06,1%,1.0125e-06,1%,-22.89%,p=0.002 n=6
Same-2,1.0105e-06,1%,1.007e-06,1%,~,p=0.736 n=6
New-2,,,1.007e-06,1%,
geomean,1.0114995056845049e-06,,1.149865644325456e-06,,+13.68%,

pkg: example.org/x/nft
,base,,head,,,
,B/s,CI,B/s,CI,vs base,P
Rate-2,1.0075e+09,1%,7.76e+08,1%,-22.98%,p=0.002 n=6
Faster-2,7.76e+08,1%,1.0075e+09,1%,+29.83%,p=0.002 n=6
geomean,1.0074999999999992e+09,,7.760000000000012e+08,,-22.98%,
`

func TestCheck(t *testing.T) {
	want := []string{
		"model Slow-2, sec/op: +29.68% (p=0.002 n=6)",
		"nft Rate-2, B/s: -22.98% (p=0.002 n=6)",
	}
	worse, compared, err := check(strings.NewReader(comparison), 10)
	if diff := cmp.Diff(want, worse); diff != "" || compared != 6 || err != nil {
		t.Errorf("%d figures, %v (-want +got):\n%s", compared, err, diff)
	}
}

// Figures of one version alone compare nothing, which is no success.
func TestNothingToCompare(t *testing.T) {
	for _, in := range []string{"", "pkg: x\n,base,\n,sec/op,CI\nSlow-2,1e-06,1%\n"} {
		if _, _, err := check(strings.NewReader(in), 10); err == nil {
			t.Errorf("no error for %q", in)
		}
	}
}
