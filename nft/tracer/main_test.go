package tracer

import (
	"testing"

	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }
