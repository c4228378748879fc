package nodesetup

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// node is a folder with the files of a node with two CPUs, and what was said about it.
type node struct {
	Options
	t      *testing.T
	log    bytes.Buffer
	failed []error // of the last Apply
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t}
	n.Options = Options{Root: t.TempDir(), Log: slog.New(slog.NewTextHandler(&n.log, nil))}
	n.put(fileOnlineCPUs, "0-1")
	n.put(fileOOMScore, "0")
	n.put(fileCount, "0")
	for file, value := range fresh {
		n.put(file, value)
	}
	n.put(fileHashSize, "65536")
	return n
}

func (n *node) put(file, value string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(file)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	testaid.Write(n.t, n.path(file), value+"\n")
}

// all returns every file's content.
func (n *node) all() map[string]string {
	n.t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(n.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, n.Root)] = strings.TrimSpace(string(b))
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return got
}

func (n *node) apply(c Conntrack) { n.failed = Apply(n.Options, c) }

// quiet fails the test if anything was said.
func (n *node) quiet() {
	n.t.Helper()
	if n.log.Len() > 0 || len(n.failed) > 0 {
		n.t.Errorf("log and failures:\n%s%v\nwant none", n.log.String(), n.failed)
	}
}

func TestApplyWritesWhatDiffersAndThenNothing(t *testing.T) {
	n := newNode(t)
	c := defaults
	c.MaxPerCore = new(int32(200000))
	want := n.all()
	want[fileMax], want[fileHashSize] = "400000", "100000"
	want[fileTCPEstablishedTimeout], want[fileTCPCloseWaitTimeout] = "86400", "3600"
	n.apply(c)
	testaid.Equal(t, "files", want, n.all())
	if got := strings.Count(n.log.String(), "level=INFO"); got != 4 || len(n.failed) > 0 {
		t.Errorf("%d lines for 4 writes, failures %v:\n%s", got, n.failed, n.log.String())
	}

	n.put(fileBuckets, "100352") // the kernel's answer, rounded up
	n.log.Reset()
	n.apply(c)
	n.quiet()
}

func TestWithoutTheModuleNoNewFile(t *testing.T) {
	n := newNode(t)
	for _, folder := range []string{sysctls, filepath.Dir(fileHashSize)} {
		if err := os.RemoveAll(n.path(folder)); err != nil {
			t.Fatal(err)
		}
	}
	want := n.all()
	n.apply(defaults)
	n.quiet()
	testaid.Equal(t, "files", want, n.all())
}

func TestOneSettingThatTheKernelLacks(t *testing.T) {
	n := newNode(t)
	if err := os.Remove(n.path(fileTCPCloseWaitTimeout)); err != nil {
		t.Fatal(err)
	}
	n.apply(defaults)
	const want = fileTCPCloseWaitTimeout + " should be 3600 and is unknown: open "
	if len(n.failed) != 1 || !strings.HasPrefix(n.failed[0].Error(), want) {
		t.Errorf("failures %v, want %s", n.failed, want)
	}
	if got := n.all()[fileMax]; got != "131072" {
		t.Errorf("the limit is %s, want 131072: the rest is set all the same", got)
	}
}

// What bridges do is set only where the kernel has the settings, and not by Apply.
func TestLeadBridges(t *testing.T) {
	n := newNode(t)
	if err := LeadBridges(n.Options); err != nil {
		t.Errorf("without br_netfilter: %v", err)
	}
	const bridge, bridge6 = "/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"
	if _, there := n.all()[bridge]; there {
		t.Errorf("%s was made", bridge)
	}
	n.put(bridge, "0")
	n.put(bridge6, "1")
	n.apply(Conntrack{})
	if got := n.all(); got[bridge] != "0" {
		t.Errorf("Apply: %s is %s", bridge, got[bridge])
	}
	if err := LeadBridges(n.Options); err != nil {
		t.Error(err)
	}
	if got := n.all(); got[bridge] != "1" || got[bridge6] != "1" || strings.Count(n.log.String(),
		"changed node setting") != 1 {
		t.Errorf("%s is %s, %s is %s; log:\n%s", bridge, got[bridge], bridge6, got[bridge6], n.log.String())
	}
}

func TestOOM(t *testing.T) {
	n := newNode(t)
	OOM(n.Options, 0)
	n.quiet()
	OOM(n.Options, -999)
	if got := n.all()[fileOOMScore]; got != "-999" {
		t.Errorf("the score is %s, want -999", got)
	}
	n.log.Reset()
	OOM(n.Options, -999)
	n.quiet()

	if err := os.Remove(n.path(fileOOMScore)); err != nil {
		t.Fatal(err)
	}
	OOM(n.Options, -999)
	if got := n.log.String(); !strings.Contains(got, "keeping its current value") || strings.Contains(got, "WARN") ||
		len(n.failed) > 0 {
		t.Errorf("a failure is logged, and no more than that; failures %v, log:\n%s", n.failed, got)
	}
}

func TestTableUseNamesTheFile(t *testing.T) {
	n := newNode(t)
	if _, _, err := TableUse(Options{Root: t.TempDir()}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the module: %v", err)
	}
	n.put(fileCount, "lots")
	if _, _, err := TableUse(n.Options); err == nil || !strings.Contains(err.Error(), fileCount) {
		t.Errorf("got %v, want an error that names the file", err)
	}
}
