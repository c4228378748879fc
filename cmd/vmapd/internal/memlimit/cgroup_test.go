package memlimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/memlimit"
)

// groupLimit is the limit of the control group in the test, in bytes. The hungry process keeps
// half of it: without a limit, the runtime lets the heap grow to twice that.
const groupLimit = 96 << 20

// newGroup makes a control group with a memory limit, of version 2 or 1, and returns its folder.
func newGroup(t *testing.T) string {
	t.Helper()
	for _, v := range []struct{ in, limit, swap string }{
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", ""},
	} {
		dir := filepath.Join(v.in, fmt.Sprintf("vmapd-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			for end := time.Now().Add(10 * time.Second); os.Remove(dir) != nil && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond) // the kernel counts a process for a moment after its end
			}
		})
		if write(dir, v.limit, groupLimit) == nil {
			_ = write(dir, v.swap, 0) // there may be no swap
			return dir
		}
	}
	t.Skip("no control group with a memory limit can be made here")
	return ""
}

// write writes a file of a control group. It must exist: where control groups are mounted there
// may also be a folder that is none.
func write(dir, name string, n int) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(f, n)
	return errors.Join(err, f.Close())
}

// hungryEnv makes the test program a process that keeps memory, and makes garbage.
const hungryEnv = "VMAPD_TEST_HUNGRY"

func TestMain(m *testing.M) {
	if how := os.Getenv(hungryEnv); how != "" {
		hunger(how)
		return
	}
	os.Exit(m.Run())
}

// hunger waits until its standard input ends, when the process is in its control group.
func hunger(how string) {
	_, _ = os.Stdin.Read(make([]byte, 1))
	if how == "limited" {
		limit, err := memlimit.Apply()
		fmt.Println(limit != nil && limit.Bytes == groupLimit, err)
	}
	const piece, kept, garbage = 64 << 10, 48 << 20, 1 << 30
	var keep [kept / piece][]byte
	for i := range garbage / piece {
		b := bytes.Repeat([]byte{byte(i)}, piece)
		if at := i % (2 * len(keep)); at < len(keep) {
			keep[at] = b
		}
		if i%16 == 0 {
			time.Sleep(time.Millisecond) // 1 GB a second is more than the daemon ever makes
		}
	}
	fmt.Println(len(keep[0]))
}

// A process that the kernel kills for its memory lives with the limit that Apply sets.
func TestAProcessLivesInItsControlGroup(t *testing.T) {
	dir := newGroup(t)
	for _, how := range []string{"unlimited", "limited"} {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), hungryEnv+"="+how, "GOMEMLIMIT=", "GOGC=")
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		goOn, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		err = write(dir, "cgroup.procs", c.Process.Pid)
		_ = goOn.Close()
		ended := c.Wait()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case how == "unlimited" && ended == nil:
			t.Errorf("a process without a limit lives: nothing is tested\n%s", &out)
		case how == "limited" && ended != nil:
			t.Errorf("with the limit: %v\n%s", ended, &out)
		case how == "limited" && out.String() != "true <nil>\n65536\n":
			t.Errorf("with the limit it says %q", &out)
		}
	}
}
