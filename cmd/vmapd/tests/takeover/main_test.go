// Package takeover: From kube-proxy to vmapd and back, from one backend to another, from one version to the next;
// deployed as the manifests say, and cleaned up.
package takeover

import (
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

func TestMain(m *testing.M) { vmapdtest.Main(m) }
