package host

import "testing"

func TestLinesOfRecentLists(t *testing.T) {
	for line, want := range map[string]string{
		"src=10.0.0.1 ttl: 63 last_seen: 4295892003 oldest_pkt: 2 4295892001, 4295892003":                    "10.0.0.1",
		"src=fd00:0000:0000:0000:0000:0000:0000:0009 ttl: 63 last_seen: 4295892003 oldest_pkt: 1 4295892003": "fd00::9",
		"":                   "",
		"src=10.0.0.1":       "",
		"a b c last_seen: 1": "",
	} {
		a, seen, ok := parseRecent(line)
		if ok != (want != "") || ok && (a.String() != want || seen != 4295892003) {
			t.Errorf("%q: want %q, got %v, %d, %v", line, want, a, seen, ok)
		}
	}
}
