package daemon

import (
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/nettest"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// silence is how long a test waits for an answer.
const silence = 2 * time.Second
