// Package diagnosis: Breakages of Services and nodes, and what doctor, explain and trace say of them.
package diagnosis

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
