// Package pages: The pages: their commands and links; alerts, recording rules and the dashboard.
package pages

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
