package diagnosis

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
)

// A client that vanished without FIN or RST leaves an entry of connection tracking. If it comes back with the same port,
// its SYN gets the endpoint of that entry, whatever the rules say: trace names the entry, and the command that removes it.
func TestTraceNamesAnOldEntryOfConnectionTracking(t *testing.T) {
	w, known := traceWorld(t)
	const withoutRST = "table ip gone {\nchain out { type filter hook output priority 0; tcp flags & rst == rst drop; }\n}\n"
	vmapdtest.Feed(t, w.Client, withoutRST, "nft", "-f", "-")
	client := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(lab.ClientIP4), Port: 40001}, Timeout: 10 * time.Second}
	dial := func() (conn net.Conn, err error) {
		err = w.Client.Do(func() (err error) { conn, err = client.Dial("tcp", "172.30.0.10:80"); return err })
		return conn, err
	}
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil { // the end is a RST, which the client's own rule drops
		t.Fatal(err)
	}
	_ = conn.Close()

	p := startTrace(t, w.Node, append(known, "--wait", "500ms", "172.30.0.10:80/tcp")...)
	client.Timeout = time.Second
	if conn, err := dial(); err == nil {
		_ = conn.Close()
	}
	const want = "Connection tracking already had an entry of this connection, with the endpoint of an earlier one: " +
		"conntrack -L -p tcp --orig-src 203.0.113.9 --sport 40001 shows it"
	if text := p.told(t); !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
}
