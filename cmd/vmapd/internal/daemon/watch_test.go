package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/labtest"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/modeltest/testlog"
	"github.com/vmapd/vmapd/model/nettest"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/manifest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

func TestMain(m *testing.M) { nettest.Main(m) }

// silence is how long a test waits for an answer.
const silence = 2 * time.Second

// unowned is the daemon, as it runs on a kernel that does not keep others from our
// tables: in this process, because no flag makes it so.
type unowned struct {
	node *lab.Namespace
	log  *testlog.Log
}

// startUnowned runs it until the test ends, and returns once it is ready.
func startUnowned(t *testing.T, node *lab.Namespace) *unowned {
	t.Helper()
	u := &unowned{node: node, log: &testlog.Log{}}
	log := slog.New(slog.NewTextHandler(u.log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	loop := &reconcile.Loop{
		State: reconcile.NewState(model.NewBuilder(model.Config{
			NodeName: lab.NodeName, NodePortAddresses: model.NodePortAddresses{Primary: true},
		}), 1),
		Log: log,
	}
	var watch func(context.Context)
	if err := node.Do(func() error { // its sockets stay in the namespace
		backend, err := kernel.Open(kernel.Options{Log: log, Unowned: true})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = backend.Close() })
		if backend.Owned() {
			return errors.New("the tables are owned: nothing is tested")
		}
		p := &dataplane{backend: backend}
		p.watchTables(backend, log)
		loop.Backend, loop.ForeignChange, watch = p.backend, p.foreign, p.watch
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	source, err := manifest.Open([]string{"../../../../testdata/demo/before"}, log)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		var d Daemon
		d.run(watch, loop.Run, func(ctx context.Context) { source.Run(ctx, loop.State) })
		done <- runAll(ctx, d.tasks)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testaid.WaitUntil(t, "it is ready", func() bool { return strings.Contains(u.log.String(), "msg=ready") })
	return u
}

func (u *unowned) nft(t *testing.T, command string) {
	t.Helper()
	c := u.node.Command(t.Context(), "nft", "-f", "-")
	c.Stdin = strings.NewReader(command)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", command, err, out)
	}
}

// tables lists our tables; one that is missing as an error.
func (u *unowned) tables(t *testing.T) string {
	t.Helper()
	var all []byte
	for _, family := range []string{"ip", "ip6"} {
		// Not in one go: in a ruleset, the table that was made last is the last.
		out, _ := u.node.Command(t.Context(), "nft", "list", "table", family, "vmapd").CombinedOutput()
		all = append(all, out...)
	}
	return string(all)
}

// waitFor waits a second at most until the tables are as they were.
func (u *unowned) waitFor(t *testing.T, before string) {
	t.Helper()
	deadline := time.Now().Add(time.Second)
	for {
		now := u.tables(t)
		if now == before {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not as before after a second (-before +now):\n%s\n%s", cmp.Diff(before, now), u.log)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWhatOthersChangeIsPutBackWithinASecond(t *testing.T) {
	w := labtest.New(t)
	u := startUnowned(t, w.Node)
	before := u.tables(t)
	ask := func() error {
		for _, vip := range []string{"172.30.0.10:80", "[fd00:172:30::10]:80"} {
			ctx, cancel := context.WithTimeout(t.Context(), silence)
			defer cancel()
			if _, err := w.Client.Ask(ctx, "tcp", netip.MustParseAddrPort(vip)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"flush ruleset",
		"delete table ip vmapd",
		"delete table ip6 vmapd",
		"flush map ip vmapd service-ips",
		"delete element ip vmapd cluster-ips { 172.30.0.10 }",
		"insert rule ip vmapd services drop",
		"flush chain ip6 vmapd services",
		"flush ruleset", // again
	} {
		u.nft(t, command)
		u.waitFor(t, before)
		if err := ask(); err != nil {
			t.Errorf("after %q was put right: %v", command, err)
		}
	}
	for _, want := range []string{
		"level=WARN msg=\"another program changed our rules",
		"msg=\"rules changed by another program\" process=nft",
	} {
		if !strings.Contains(u.log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, u.log)
		}
	}
}
