package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// secret is what may be one in a log.
var secret = regexp.MustCompile(`(?i)((?:bearer|token|password|secret|authorization)["']?[=:\s]\s*["']?)[^\s"',]+`)

// gathered are the commands with outputs in a bundle, of each node, by file.
var gathered = map[string][]string{
	"status.json": {"status", "-o", "json"}, "services.json": {"services", "-A", "-o", "json"},
	"doctor.txt": {"doctor"}, "doctor.json": {"doctor", "-o", "json"}, "version.txt": {"version"},
}

// Bundle writes an archive for a bug report: what the daemons of nodes say, or of all with none, their logs,
// and the objects from which "vmapd render -f" makes the rules. It reads no Secrets.
func (p *Plugin) Bundle(ctx context.Context, w io.Writer, nodes []string, now time.Time) (files int, err error) {
	pods, err := p.Pods(ctx)
	if err != nil {
		return 0, err
	}
	pods = slices.DeleteFunc(pods, func(t Target) bool { return len(nodes) > 0 && !slices.Contains(nodes, t.Node) })
	if len(pods) == 0 {
		return 0, fmt.Errorf("no pod of vmapd is on the nodes %s", report.List(nodes, 10))
	}
	compressed := gzip.NewWriter(w)
	b := &bundle{tar: tar.NewWriter(compressed), now: now}
	for name, args := range map[string][]string{
		"kubernetes.yaml": {"version", "-o", "yaml"},
		"objects.yaml":    {"get", "services,endpointslices,nodes", "-A", "-o", "yaml"},
		"pods.txt":        {"get", "pods", "-n", p.Namespace, "-l", p.Selector, "-o", "wide"},
	} {
		out, err := p.Kubectl(ctx, args...)
		b.add(name, out, err)
	}
	p.each(pods, func(_ int, t Target) {
		for name, args := range gathered {
			out, err := p.in(ctx, t, args...)
			b.add(t.Node+"/"+name, out, err)
		}
		for name, previous := range map[string]string{"log.txt": "false", "log-before.txt": "true"} {
			out, err := p.Kubectl(ctx, "logs", "-n", t.Namespace, t.Pod, "-c", t.Container,
				"--timestamps", "--tail=20000", "--previous="+previous)
			b.add(t.Node+"/"+name, out, err)
		}
	})
	return b.files, errors.Join(b.err, b.tar.Close(), compressed.Close())
}

type bundle struct {
	mu    sync.Mutex
	tar   *tar.Writer
	now   time.Time
	files int
	err   error
}

// add adds a file with an output and, if that failed, the error.
func (b *bundle) add(name string, out []byte, failed error) {
	if failed != nil {
		out = fmt.Appendf(bytes.Clone(out), "\n%v\n", failed)
	}
	out = secret.ReplaceAll(out, []byte("${1}(left out)"))
	const readable = 0o644
	header := &tar.Header{Name: name, Mode: readable, Size: int64(len(out)), ModTime: b.now}
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.tar.WriteHeader(header)
	_, failed = b.tar.Write(out)
	b.err = errors.Join(b.err, err, failed)
	b.files++
}
