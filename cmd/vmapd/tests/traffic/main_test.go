// Package traffic: What becomes of connections: those that are there, session affinity, pings, strays, the backend in
// user space.
package traffic

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
