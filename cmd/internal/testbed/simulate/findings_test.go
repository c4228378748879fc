package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// finding is a short life that failed once. Its steps are as report prints them.
type finding struct {
	Node
	Name   string
	Config int // of modeltest.Configs
	Steps  []Step
}

// UnmarshalText reads what String returns.
func (s *Step) UnmarshalText(text []byte) (err error) {
	kind, seed, _ := strings.Cut(string(text), ":")
	s.Kind = Kind(slices.Index(names[:], kind))
	if s.Kind < 0 {
		return fmt.Errorf("no kind of steps is %q", kind)
	}
	s.Seed, err = strconv.ParseUint(seed, 16, 64)
	return err
}

func TestFindings(t *testing.T) {
	text := testaid.Read(t, "testdata/findings.json")
	var findings []finding
	if err := json.Unmarshal([]byte(text), &findings); err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Run(f.Name, func(t *testing.T) {
			f.Node.Config = modeltest.Configs[f.Config]
			l := Life{f.Node, f.Steps}
			if r := play(t, l, io.Discard); r.Err != nil {
				t.Errorf("after step %d: %v", r.Steps, r.Err)
				report(t, l)
			}
		})
	}
}
