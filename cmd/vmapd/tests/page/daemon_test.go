package page

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/cli"
	"github.com/vmapd/vmapd/cmd/vmapd/tests/vmapdtest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// isolated is a variable of the environment that is set in the network namespace of these tests.
const isolated = "VMAPD_BROWSER_ISOLATED"

// TestMain makes a network namespace with no more than loopback, where Services' addresses have a route: the
// process becomes itself again there.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "vmapd" { // the program that it tests
		cli.Main()
		return
	}
	if os.Getenv(isolated) != "" {
		os.Exit(m.Run())
	}
	how := "-n"
	if os.Geteuid() != 0 {
		how = "-rn"
	}
	unshare, err := exec.LookPath("unshare")
	if err == nil {
		const script = `ip link set lo up && ip route add 172.31.0.0/16 dev lo && exec "$@"`
		args := append([]string{"unshare", how, "sh", "-c", script, "sh"}, os.Args...)
		err = syscall.Exec(unshare, args, append(os.Environ(), isolated+"=1"))
	}
	fmt.Fprintln(os.Stderr, "make a network namespace:", err)
	os.Exit(1)
}

// daemon is vmapd in this process' network namespace, with its page.
type daemon struct {
	*exec.Cmd
	log     *bytes.Buffer
	address string // of the page
}

// startDaemon starts vmapd, and returns when it has programmed everything.
func startDaemon(t *testing.T, manifests string) *daemon {
	t.Helper()
	program, socket := vmapdtest.Program(t), filepath.Join(t.TempDir(), "vmapd.sock")
	d := &daemon{
		Cmd: exec.CommandContext(t.Context(), program, "--from", manifests, "--hostname-override=node-1", "--socket",
			socket, "--service-counters"),
		log: &bytes.Buffer{},
	}
	d.Stderr = d.log
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Process.Kill()
		_ = d.Wait()
		if t.Failed() {
			t.Logf("the daemon's log:\n%.4000s", d.log)
		}
	})
	d.address = startPage(t, program, socket)
	testaid.WaitUntil(t, "the daemon has programmed the Services", func() bool {
		status, body := d.get(t, "api/status")
		return status == http.StatusOK && strings.Contains(body, `"ready":true`)
	})
	return d
}

// startPage starts the command that serves the page, and returns the address that it prints.
func startPage(t *testing.T, program, socket string) string {
	t.Helper()
	ui := exec.CommandContext(t.Context(), program, "ui", "--socket", socket, "--port", "0")
	stdout, err := ui.StdoutPipe()
	if err == nil {
		err = ui.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ui.Process.Kill()
		_ = ui.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (d *daemon) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
