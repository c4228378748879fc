// Package neighbours: Programs that translate addresses on the same node, and Services that share addresses, ports and
// pods.
package neighbours

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
