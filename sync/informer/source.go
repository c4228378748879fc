package informer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Source follows an API server and writes the objects for this node into a [reconcile.State].
type Source struct {
	Client   *client.Client
	NodeName string // of the only Node to read
	Log      *slog.Logger
	Plain    bool // lists are not to be streamed

	quiet time.Duration // 0: slow

	mu        sync.Mutex
	followers []*follower // by the names of their kinds
}

// Unread returns the kinds without an initial list yet: of these, nothing is known. It may be
// called at any time.
func (s *Source) Unread() (kinds []string) {
	s.each(func(f *follower) {
		if !f.complete && !f.lacking {
			kinds = append(kinds, f.name)
		}
	})
	return kinds
}

// Heard returns when the API server last sent something about each kind that made sense, by the kinds'
// names. A kind of which nothing has been received is missing. It may be called at any time.
func (s *Source) Heard() map[string]time.Time {
	all := map[string]time.Time{}
	s.each(func(f *follower) {
		if !f.heard.IsZero() {
			all[f.name] = f.heard
		}
	})
	return all
}

// Failing returns the kinds of objects that can't be read now, by their names. It may be called at any time.
func (s *Source) Failing() (failures []Failure) {
	s.each(func(f *follower) {
		if !f.failure.Since.IsZero() {
			failures = append(failures, f.failure)
		}
	})
	return failures
}

func (s *Source) each(do func(*follower)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		f.mu.Lock()
		do(f)
		f.mu.Unlock()
	}
}

// Debug returns a log for client-go. All but errors is at Debug level.
func Debug(log *slog.Logger) klog.Logger {
	return logr.FromSlogHandler(log.Handler()).V(-int(slog.LevelDebug))
}

// Run calls Complete when the initial lists are in the state, and then writes each change until ctx ends. Errors of the
// server do not change the state.
func (s *Source) Run(ctx context.Context, state *reconcile.State) error {
	if s.NodeName == "" {
		return errors.New("follow the API server: no node name")
	}
	ctx = klog.NewContext(ctx, Debug(s.Log))
	start := time.Now()

	var all, initial sync.WaitGroup
	s.mu.Lock()
	for _, r := range resources(s.Client, s.NodeName) {
		initial.Add(1)
		f := newFollower(r, s, state, sync.OnceFunc(initial.Done))
		s.followers = append(s.followers, f)
		all.Go(func() { f.run(ctx) })
	}
	slices.SortFunc(s.followers, func(a, b *follower) int { return cmp.Compare(a.name, b.name) })
	s.mu.Unlock()
	initial.Wait()
	if ctx.Err() == nil {
		state.Complete()
		s.Log.Info("initial lists read; watching", slog.Duration("took", time.Since(start)))
	}
	all.Wait()
	return nil
}

// Config says how to reach the API server. Its fields and defaults are those of kube-proxy's clientConnection.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file. If both it and Master are empty, the pod's service account is used.
	Kubeconfig string
	// Master is the URL of the API server, in place of the one in the file.
	Master string
	// ContentType is the format of requests, and of responses unless AcceptContentTypes
	// is set. Default: application/vnd.kubernetes.protobuf, and JSON is accepted too.
	ContentType string
	// AcceptContentTypes are the accepted formats of responses. Default: see ContentType.
	AcceptContentTypes string
	// QPS bounds the requests per second; less than 0 means no bound. Default: 5.
	QPS float32
	// Burst is the number of requests that may exceed QPS for a moment. Default: 10.
	Burst int
}

// REST returns a configuration for client-go's clients. They follow the files with certificates and tokens that the
// kubeconfig names: when they are replaced, no restart is needed. They do not follow the kubeconfig itself.
func (c Config) REST() (*rest.Config, error) {
	out, err := c.load()
	if err != nil {
		return nil, err
	}
	out.QPS, out.Burst = c.QPS, c.Burst
	out.ContentType = cmp.Or(c.ContentType, runtime.ContentTypeProtobuf)
	out.AcceptContentTypes = c.AcceptContentTypes
	probes := net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 3}
	out.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: probes, Control: boundSilence}).DialContext
	if out.AcceptContentTypes == "" && out.ContentType == runtime.ContentTypeProtobuf {
		out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return out, nil
}

// A connection without answers ends within a minute. HTTP/2 has pings for that, HTTP/1.1 has not.
const (
	dialTimeout = 10 * time.Second
	mostSilence = 45 * time.Second
)

// boundSilence bounds how long sent data may be unacknowledged, while the kernel sends no keep-alives.
func boundSilence(_, _ string, c syscall.RawConn) error {
	var err error
	return cmp.Or(c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(mostSilence.Milliseconds()))
	}), err)
}

// load reads the kubeconfig.
func (c Config) load() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		out, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("no kubeconfig and no master is given, and this is no pod: KUBERNETES_SERVICE_HOST is not set")
		}
		return out, err
	}
	out, err := clientcmd.BuildConfigFromFlags(c.Master, c.Kubeconfig)
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		err = file.Err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return out, nil
}

// Connect returns a client with a rate limit of its own. It sends no request yet: the server may be away.
func Connect(c Config) (*client.Client, error) {
	conf, err := c.REST()
	if err != nil {
		return nil, err
	}
	out, err := client.New(conf)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", conf.Host, err)
	}
	return out, nil
}
