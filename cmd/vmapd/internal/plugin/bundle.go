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
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
)

// secret is what may be one in a line of a log: the rest of the line, as a header may have several words.
var secret = regexp.MustCompile(`(?i)(authorization\b|cookie\b|bearer\s|--(token|password)\b|` +
	`(token|passw(or)?d|secret|api-?key)[\\"']*\s*[=:]|://[^/\s@:]*:[^/\s@]+@|\beyJ[\w-]{8,}\.[\w-]{8,}).*`)

const leftOut = "(left out: may be a secret)"

// gathered are the commands with outputs in a bundle, of each node, by file.
var gathered = map[string][]string{
	"status.json": {"status", "-o", "json"}, "services.json": {"services", "-A", "-o", "json"},
	"doctor.txt": {"doctor"}, "doctor.json": {"doctor", "-o", "json"}, "version.txt": {"version"},
}

// Bundle writes an archive for a bug report about nodes; none: all. It reads no Secrets. Missing is what could not be
// collected, with the reasons; it is in the archive, too.
func (p *Plugin) Bundle(
	ctx context.Context, w io.Writer, nodes []string, now time.Time,
) (files int, missing []string, err error) {
	pods, err := p.Pods(ctx)
	if err != nil {
		return 0, nil, err
	}
	compressed := gzip.NewWriter(w)
	b := &bundle{tar: tar.NewWriter(compressed), now: now}
	for _, node := range nodes {
		if !slices.ContainsFunc(pods, func(t Target) bool { return t.Node == node }) {
			b.add(node, nil, errors.New("no pod of vmapd is on this node"))
		}
	}
	pods = slices.DeleteFunc(pods, func(t Target) bool { return len(nodes) > 0 && !slices.Contains(nodes, t.Node) })
	if len(pods) == 0 {
		return 0, nil, fmt.Errorf("no pod of vmapd is on the nodes %s", report.List(nodes, 10))
	}
	for name, args := range map[string][]string{
		"kubernetes.yaml": {"version", "-o", "yaml"},
		"objects.yaml":    {"get", "services,endpointslices,nodes", "-A", "-o", "yaml"},
		"pods.txt":        {"get", "pods", "-n", p.Namespace, "-l", p.Selector, "-o", "wide"},
	} {
		out, err := p.Kubectl(ctx, args...)
		b.add(name, out, err)
	}
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), atOnce, len(pods), func(i int) {
		t := pods[i]
		for name, args := range gathered {
			out, err := p.in(ctx, t, args...)
			if len(out) > 0 {
				err = nil // doctor's exit code is about the node
			}
			b.add(t.Node+"/"+name, out, err)
		}
		for name, previous := range map[string]string{"log.txt": "false", "log-before.txt": "true"} {
			out, err := p.Kubectl(ctx, "logs", "-n", t.Namespace, t.Pod, "-c", t.Container,
				"--timestamps", "--tail=20000", "--previous="+previous)
			if previous == "true" && err != nil && strings.Contains(err.Error(), "previous terminated container") {
				continue // the container has not been restarted
			}
			b.add(t.Node+"/"+name, secret.ReplaceAll(out, []byte(leftOut)), err)
		}
	})
	if slices.Sort(b.missing); len(b.missing) > 0 {
		b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"), nil)
	}
	return b.files, b.missing, errors.Join(b.err, b.tar.Close(), compressed.Close())
}

type bundle struct {
	mu      sync.Mutex
	tar     *tar.Writer
	now     time.Time
	files   int
	missing []string
	err     error
}

func (b *bundle) add(name string, out []byte, failed error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if failed != nil {
		text := strings.ReplaceAll(strings.TrimSpace(failed.Error()), "\n", "; ")
		b.missing = append(b.missing, name+": "+secret.ReplaceAllString(text, leftOut))
	}
	if len(bytes.TrimSpace(out)) == 0 {
		return
	}
	const readable = 0o644
	header := &tar.Header{Name: name, Mode: readable, Size: int64(len(out)), ModTime: b.now}
	err := b.tar.WriteHeader(header)
	_, failed = b.tar.Write(out)
	b.err = errors.Join(b.err, err, failed)
	b.files++
}
