// Package cluster: The daemon in a cluster: what it reads there, its events, metrics, health checks and configuration.
package cluster

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
