package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/model/nettest"
)

// roleEnv makes the test program play a part instead of testing.
const roleEnv = "VMAPD_LAB_TEST_ROLE"

// play is the main function of the roles, and returns the exit code.
func play(role string) int {
	nettest.Prepare()
	ctx := context.Background()
	w, err := New(ctx, Config{Pods: 1, Ports: []uint16{port}})
	if err != nil {
		fmt.Println(err)
		return 3
	}
	switch role {
	case "ask":
		a, err := w.Client.Ask(ctx, "tcp", netip.AddrPortFrom(w.Pods()[0].IP4, port))
		fmt.Println(a.Pod, os.Getuid(), err)
		return 7
	case "hold": // waits to be killed, with a program in the world
		cmd := w.Client.Command(ctx, "sleep", "1000")
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 5
		}
		fmt.Println(os.Getpid(), cmd.Process.Pid)
		fmt.Println(cmd.Wait()) // never
		return 0
	}
	return 6
}

// actor prepares the test program in a role. An ordinary one lacks privileges: it
// is root of a user namespace that does not own the network namespace.
func actor(t *testing.T, role string, ordinary bool) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if ordinary {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func TestAProgramBeginsAgainAsRootOfAUserNamespace(t *testing.T) {
	nettest.Need(t)
	out, err := actor(t, "ask", true).CombinedOutput()
	skipForbidden(t, err, out)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("want exit code 7, got %v: %s", err, out)
	}
	if got, want := string(out), "pod-1 0 <nil>\n"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
}

func TestKilledLeavesNothing(t *testing.T) {
	nettest.Need(t)
	for name, ordinary := range map[string]bool{"root": false, "ordinary user": true} {
		t.Run(name, func(t *testing.T) {
			cmd := actor(t, "hold", ordinary)
			line := readLine(t, start(t, cmd))
			var holder, sleeper int
			if _, err := fmt.Sscan(line, &holder, &sleeper); err != nil {
				err := cmd.Wait()
				skipForbidden(t, err, []byte(line))
				t.Fatalf("%v: %s", err, line)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("want a killed process")
			}
			for _, pid := range []int{holder, sleeper} {
				testaid.WaitUntil(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !running(pid) })
			}
		})
	}
}

func TestCommandRunsInside(t *testing.T) {
	w := newWorld(t, 0)
	for range 3 {
		out, err := w.Client.Command(t.Context(), "cat", "/proc/net/fib_trie").Output()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(out, []byte(ClientIP4)) || bytes.Contains(out, []byte(NodeIP4+"\n")) {
			t.Errorf("not the client's addresses: %s", out)
		}
	}
	out, err := w.Client.Command(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 9").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 9 || string(out) != "out\nerr\n" {
		t.Errorf("want both lines and 9, got %q, %v", out, err)
	}
	if err := w.Client.Command(t.Context(), "no-such-program").Run(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("want %v, got %v", exec.ErrNotFound, err)
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	w := newWorld(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := w.Client.Command(ctx, "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("want an error, got none")
	}
	if took := time.Since(begin); took > stopGrace {
		t.Errorf("took %v: not by SIGTERM", took)
	}
}

// skipForbidden skips if the role found user namespaces forbidden.
func skipForbidden(t *testing.T, err error, out []byte) {
	t.Helper()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		nettest.Missing(t, "user namespaces: ", string(out))
	}
}

// start starts cmd and returns its output.
func start(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return bufio.NewReader(r)
}

// readLine reads one line.
func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// running reports whether a process exists and is more than a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
