package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/model/nettest"
)

// netns is a network namespace of a test's own.
type netns struct{ file *os.File }

// newNetNS makes a network namespace. It is gone when the test ends.
func newNetNS(t testing.TB) netns {
	t.Helper()
	return netns{nettest.New(t)}
}

func (n netns) fd() int { return int(n.file.Fd()) }

// nft runs the nft command in the namespace and returns what it prints.
func (n netns) nft(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := n.tryNFT(stdin, args...)
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return out
}

func (n netns) tryNFT(stdin string, args ...string) (string, error) {
	return n.run(stdin, "nft", args...)
}

func (n netns) run(stdin, name string, args ...string) (string, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(n.fd(), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		cmd := exec.Command(name, args...)
		cmd.Stdin = bytes.NewBufferString(stdin)
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	r := <-done
	return string(r.out), r.err
}

// What nft prints of a table's owner, and of the blank line behind.
var (
	ownerName = regexp.MustCompile(`(?m)( #)? progname .*$`)
	ownerFlag = regexp.MustCompile(`\tflags (?:owner)?\n(\tcomment .*\n)\n`)
)

// withoutOwner takes out of a listing what says that the table is owned: text loaded by
// nft has no owner.
func withoutOwner(listing string) string {
	return ownerFlag.ReplaceAllString(ownerName.ReplaceAllString(listing, ""), "$1")
}
