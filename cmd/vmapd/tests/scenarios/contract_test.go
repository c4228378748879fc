package scenarios

import (
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// TestTheContractIsShown checks the last column of the table "From the contract to a test": it names all scenarios,
// and no scenario or Go test that does not exist. So do the faults that were planted.
func TestTheContractIsShown(t *testing.T) {
	text := testaid.Read(t, vmapdtest.Testdata(t)+"/scenario/README.md")
	_, table, _ := strings.Cut(text, "\n## From the contract to a test\n")
	root := filepath.Dir(vmapdtest.Testdata(t))
	tests, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", `^func (Test|Example)\w+`, root).Output()
	if err != nil {
		nettest.Missing(t, "grep, or the sources, as in an emulated machine: ", err)
	}
	_, faults, _ := strings.Cut(testaid.Read(t, root+"/cmd/internal/testbed/FAULTS.md"), "|---|")
	table += faults
	exists, missing := map[string]bool{}, map[string]bool{}
	for name := range strings.FieldsSeq(string(tests)) {
		exists[name] = true
	}
	for _, s := range scenarios(t) {
		exists[s.name], missing[s.name] = true, true
	}
	for _, row := range regexp.MustCompile(`(?m)^\|.*\|([^|]*)\|$`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`[^`]+`|Test\\w+").FindAllString(row[1], -1) {
			name = strings.Trim(name, "`")
			if delete(missing, name); !exists[name] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(row[0]), name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("scenario %s is not in the table of testdata/scenario/README.md", name)
	}
}
