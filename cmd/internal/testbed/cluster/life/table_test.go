package life

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/model/nettest"
)

// listing is nft's JSON of a table with what is given.
func listing(objects ...string) string {
	return `{"nftables":[{"metainfo":{"version":"1.0.6"}},{"table":{"family":"ip","name":"vmapd","handle":1,"flags":"owner"}},` +
		strings.Join(objects, ",") + `]}`
}

// compared returns how the lines of two tables differ.
func compared(t *testing.T, tables [2][]string) string {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		nettest.Missing(t, err)
	}
	var sorted [2][]string
	for i, objects := range tables {
		jq := exec.Command("jq", "-cS", lines)
		jq.Stdin = strings.NewReader(listing(objects...))
		out, err := jq.Output()
		if err != nil {
			t.Fatal(err)
		}
		sorted[i] = slices.Sorted(strings.Lines(string(out)))
	}
	return cmp.Diff(sorted[0], sorted[1])
}

const (
	endpoints = `{"map":{"family":"ip","name":"endpoints","table":"vmapd","type":["ipv4_addr","inet_proto","inet_service","integer"],"map":"ipv4_addr . inet_service","handle":14,"elem":[%]}}`
	slot0     = `[{"concat":["172.30.0.10","tcp",80,0]},{"concat":["10.0.0.2",8080]}]`
	slot1     = `[{"concat":["172.30.0.10","tcp",80,1]},{"concat":["10.0.0.3",8080]}]`
	swapped0  = `[{"concat":["172.30.0.10","tcp",80,0]},{"concat":["10.0.0.3",8080]}]`
	swapped1  = `[{"concat":["172.30.0.10","tcp",80,1]},{"concat":["10.0.0.2",8080]}]`
	slot2     = `[{"concat":["172.30.0.10","tcp",80,2]},{"concat":["10.0.0.3",8080]}]`

	base     = `{"chain":{"family":"ip","table":"vmapd","name":"output","handle":6,"type":"nat","hook":"output","prio":-100,"policy":"accept"}}`
	services = `{"chain":{"family":"ip","table":"vmapd","name":"services","handle":7}}`
	jump     = `{"rule":{"family":"ip","table":"vmapd","chain":"output","handle":48,"expr":[{"jump":{"target":"services"}}]}}`
	dropped  = `{"rule":{"family":"ip","table":"vmapd","chain":"services","handle":49,"expr":[{"counter":{"packets":%,"bytes":%}},{"drop":null}]}}`
	refused  = `{"rule":{"family":"ip","table":"vmapd","chain":"services","handle":50,"expr":[{"reject":{"type":"tcp reset"}}]}}`
	affinity = `{"map":{"family":"ip","name":"affinity","table":"vmapd","type":"ipv4_addr","map":"verdict","flags":["timeout"],"elem":[%]}}`
)

func with(s, elements string) string { return strings.ReplaceAll(s, "%", elements) }

func TestTablesDiffer(t *testing.T) {
	for name, tables := range map[string][2][]string{
		"an endpoint is missing": {{with(endpoints, slot0+","+slot1)}, {with(endpoints, slot0)}},
		"a slot is missing":      {{with(endpoints, slot0+","+slot1)}, {with(endpoints, slot0+","+slot2)}},
		"an endpoint too much":   {{with(endpoints, slot0)}, {with(endpoints, slot0+","+slot1)}},
		"a rule is missing":      {{base, services, jump, refused}, {base, services, jump}},
		"rules in another order": {
			{base, services, jump, with(dropped, "0"), refused}, {base, services, jump, refused, with(dropped, "0")},
		},
		"a chain that is used": {{base, services, jump}, {base}},
	} {
		t.Run(name, func(t *testing.T) {
			if compared(t, tables) == "" {
				t.Error("no difference")
			}
		})
	}
}
