// Package conntrack: Flows of connection tracking that end with their endpoints, and those of the fast path.
package conntrack

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
