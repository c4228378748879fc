package health

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

func TestAPortThatIsTaken(t *testing.T) {
	w := newWorld(t)
	p := testaid.FreePorts(t, 2)
	other := take(t, fmt.Sprintf(":%d", p[0]))
	w.set(service("ns1/a", p[0]), service("ns1/b", p[1]))
	w.mustSay("127.0.0.1", p[1], "503 b")
	w.mustFail(fmt.Sprintf("ns1/a: listen tcp4 0.0.0.0:%d: bind: address already in use", p[0]))
	w.set(local("ns1/b", "10.0.0.2")) // tries again, without a new message
	w.mustSay("127.0.0.1", p[1], "200 b")
	w.mustFail()
	hangUp(other)
	w.mustSay("127.0.0.1", p[0], "503 a") // without a round
	w.mustFail()
	for _, want := range []string{
		`level=WARN msg="cannot listen on health-check port; retrying" service=ns1/a`,
		`level=INFO msg="listening on health-check port again" service=ns1/a`,
	} { // the line may come after the first answer
		testaid.WaitUntil(t, "once in the log: "+want, func() bool { return strings.Count(w.log.String(), want) == 1 })
	}
}

func TestTwoServicesWithOnePort(t *testing.T) {
	w := newWorld(t)
	p := testaid.FreePorts(t, 2)
	taken := func(loser string) string {
		return fmt.Sprintf("%s: listen tcp4 0.0.0.0:%d: bind: address already in use", loser, p[0])
	}
	w.set(service("ns1/b", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.set(service("ns1/a", p[0])) // the one that has it keeps it
	w.mustFail(taken("ns1/a"))
	w.set(service("ns1/d", p[0]), service("ns1/c", p[0]))
	w.mustFail(taken("ns1/c"), taken("ns1/d"))
	w.mustSay("127.0.0.1", p[0], "503 b")
	w.remove(service("ns1/b", p[0])) // the first by name gets it
	w.mustSay("127.0.0.1", p[0], "503 a")
	w.set(service("ns1/a", p[1]))
	w.mustSay("127.0.0.1", p[0], "503 c")
	w.mustSay("127.0.0.1", p[1], "503 a")
	w.remove(service("ns1/d", p[0])) // it never had the port, and does not wait for it any more
	w.remove(service("ns1/c", p[0]))
	w.mustSay("127.0.0.1", p[0], "refused")
	w.set(service("ns1/f", p[0]))
	w.mustSay("127.0.0.1", p[0], "503 f")
	w.mustFail()
}
