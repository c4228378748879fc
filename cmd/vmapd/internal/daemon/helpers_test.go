package daemon

import (
	"os"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.RunTests(m.Run)) }

// silence is how long a test waits for an answer.
const silence = 2 * time.Second
