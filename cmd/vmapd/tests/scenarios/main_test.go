// Package scenarios: The scenarios of testdata/scenario: their rules as golden texts, and their connections with real
// packets, by each way into the kernel.
package scenarios

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
